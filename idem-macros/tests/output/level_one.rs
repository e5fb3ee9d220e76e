#[allow(clippy::unused_async)]
#[cfg(feature = "mail")]
async fn send_mail(tx: &mut Tx<Sqlite>, mail: Mail) -> sqlx::Result<()> {
    record(tx, mail).await
}
#[cfg(feature = "mail")]
#[automatically_derived]
#[allow(deprecated)]
impl ::idem_runtime::__private::Handler<
    <Tx<Sqlite> as ::idem_runtime::__private::Transaction>::Store,
> for SendMailHandler
where
    Tx<Sqlite>: ::idem_runtime::__private::Transaction,
{
    const SPEC: ::idem_runtime::__private::HandlerSpec = ::idem_runtime::__private::HandlerSpec {
        name: "send_mail",
        scope: ::core::concat!(::core::env!("CARGO_PKG_NAME"), "::", "send_mail"),
        level: ::idem_runtime::__private::Level::One,
        key: &[],
        constraint: ::core::option::Option::None,
        same: &[],
    };
    type Message = Mail;
    type Work = Tx<Sqlite>;
    async fn call<'a>(
        __work: &'a mut Self::Work,
        __message: Self::Message,
        __context: &'a ::idem_runtime::__private::Context,
    ) -> ::idem_runtime::__private::Called {
        ::idem_runtime::__private::forget(send_mail(__work, __message).await)
    }
}
#[cfg(feature = "mail")]
///The handler `send_mail`, to register with a consumer.
#[derive(::core::clone::Clone, ::core::marker::Copy, ::core::fmt::Debug)]
struct SendMailHandler;
