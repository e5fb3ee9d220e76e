#[allow(clippy::unused_async)]
fn book(tx: &mut Tx<Postgres>, shipment: Shipment) -> Result<(), Failure> {
    Ok(())
}
::core::compile_error! {
    "handler `book` must be `async`"
}
::core::compile_error! {
    "`level = 2` needs a `key`\nhelp: name the fields that identify the operation: `key = \"customer_id, external_ref\"`"
}
#[automatically_derived]
impl ::idem_runtime::__private::Definition for BookHandler {
    const SPEC: ::idem_runtime::__private::HandlerSpec = ::idem_runtime::__private::HandlerSpec::new(
        "",
        "",
        ::idem_runtime::__private::Level::Zero,
    );
    type Message = ();
    type Decode = ::idem_runtime::__private::Json;
    type Work = ::idem_runtime::__private::NoTransaction;
    fn call<'a>(
        _: &'a mut Self::Work,
        _: Self::Message,
        _: &'a ::idem_runtime::__private::Context,
    ) -> ::idem_runtime::__private::Called<'a> {
        loop {}
    }
}
///The handler `book`, to register with a consumer.
#[allow(missing_copy_implementations, missing_debug_implementations)]
struct BookHandler;
