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
impl ::idem_runtime::__private::Definition for StoreHandler {
    const SPEC: ::idem_runtime::__private::HandlerSpec = ::idem_runtime::__private::HandlerSpec::new(
            "store",
            ::core::concat!(::core::env!("CARGO_PKG_NAME"), "::", "store"),
            ::idem_runtime::__private::Level::Two,
        )
        .with_key(&["entry_no"]);
    type Message = Entry;
    type Decode = ::idem_runtime::__private::Json;
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
    fn call<'a>(
        __work: &'a mut Self::Work,
        __message: Self::Message,
        __context: &'a ::idem_runtime::__private::Context,
    ) -> ::idem_runtime::__private::Called<'a> {
        ::core::result::Result::Ok(
            ::idem_runtime::__private::alone::<Self>(__work, __message, __context),
        )
    }
    fn call_batch<'a>(
        __work: &'a mut Self::Work,
        __messages: ::std::vec::Vec<Self::Message>,
        __contexts: &'a [&'a ::idem_runtime::__private::Context],
    ) -> ::idem_runtime::__private::BatchCalled<'a> {
        let __count = __messages.len();
        ::core::result::Result::Ok(
            ::idem_runtime::__private::forget_batch(
                store(
                    __work,
                    __messages,
                    <State<
                        Rates,
                    > as ::idem_runtime::__private::FromBatch>::from_batch(__contexts)?,
                ),
                __count,
            ),
        )
    }
}
///The handler `store`, to register with a consumer.
#[allow(missing_copy_implementations, missing_debug_implementations)]
struct StoreHandler;
