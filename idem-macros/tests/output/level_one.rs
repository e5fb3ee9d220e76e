#[allow(clippy::unused_async)]
#[cfg(feature = "mail")]
async fn send_mail(tx: &mut Tx<Sqlite>, mail: Mail) -> sqlx::Result<()> {
    record(tx, mail).await
}
#[cfg(feature = "mail")]
#[automatically_derived]
#[allow(deprecated)]
impl ::idem_runtime::__private::Definition for SendMailHandler {
    const SPEC: ::idem_runtime::__private::HandlerSpec = ::idem_runtime::__private::HandlerSpec::new(
        "send_mail",
        ::core::concat!(::core::env!("CARGO_PKG_NAME"), "::", "send_mail"),
        ::idem_runtime::__private::Level::One,
    );
    type Message = Mail;
    type Decode = ::idem_runtime::__private::Json;
    type Work = Tx<Sqlite>;
    fn call<'a>(
        __work: &'a mut Self::Work,
        __message: Self::Message,
        __context: &'a ::idem_runtime::__private::Context,
    ) -> ::idem_runtime::__private::Called<'a> {
        ::core::result::Result::Ok(
            ::idem_runtime::__private::forget(send_mail(__work, __message)),
        )
    }
}
#[cfg(feature = "mail")]
///The handler `send_mail`, to register with a consumer.
#[allow(missing_copy_implementations, missing_debug_implementations)]
struct SendMailHandler;
