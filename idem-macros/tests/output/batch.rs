#[allow(clippy::unused_async)]
async fn store(
    tx: &mut Tx<Postgres>,
    entries: Vec<Entry>,
    State(rates): State<Rates>,
) -> Result<(), Failure> {
    insert_all(tx, entries, rates).await
}
#[automatically_derived]
#[allow(deprecated)]
impl ::idem_runtime::__private::Handler<
    <Tx<Postgres> as ::idem_runtime::__private::Transaction>::Store,
> for StoreHandler
where
    Tx<Postgres>: ::idem_runtime::__private::Transaction,
{
    const SPEC: ::idem_runtime::__private::HandlerSpec = ::idem_runtime::__private::HandlerSpec {
        name: "store",
        scope: ::core::concat!(::core::env!("CARGO_PKG_NAME"), "::", "store"),
        level: ::idem_runtime::__private::Level::Two,
        key: &["entry_no"],
        constraint: ::core::option::Option::None,
        same: &[],
    };
    type Message = Entry;
    type Work = Tx<Postgres>;
    fn key(
        __message: &Self::Message,
        __key: &mut ::idem_runtime::__private::KeyEncoder,
    ) {
        __key.part(&__message.entry_no);
    }
    fn require(__requirements: &mut ::idem_runtime::__private::Requirements) {
        <State<Rates> as ::idem_runtime::__private::FromBatch>::require(__requirements);
    }
    async fn call<'a>(
        __work: &'a mut Self::Work,
        __message: Self::Message,
        __context: &'a ::idem_runtime::__private::Context,
    ) -> ::idem_runtime::__private::Called {
        let __messages = ::std::vec![__message];
        ::idem_runtime::__private::alone(
                Self::call_batch(__work, __messages, &[__context]),
            )
            .await
    }
    async fn call_batch<'a>(
        __work: &'a mut Self::Work,
        __messages: ::std::vec::Vec<Self::Message>,
        __contexts: &'a [&'a ::idem_runtime::__private::Context],
    ) -> ::idem_runtime::__private::BatchCalled {
        let __count = __messages.len();
        ::idem_runtime::__private::forget_batch(
            store(
                    __work,
                    __messages,
                    <State<
                        Rates,
                    > as ::idem_runtime::__private::FromBatch>::from_batch(__contexts)?,
                )
                .await,
            __count,
        )
    }
}
///The handler `store`, to register with a consumer.
#[derive(::core::clone::Clone, ::core::marker::Copy, ::core::fmt::Debug)]
struct StoreHandler;
