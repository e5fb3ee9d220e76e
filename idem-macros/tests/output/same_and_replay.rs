#[allow(clippy::unused_async)]
async fn charge(tx: &mut Tx<Postgres>, order: Order) -> Result<Receipt, Failure> {
    record(tx, order).await
}
#[automatically_derived]
#[allow(deprecated)]
impl ::idem_runtime::__private::Definition for ChargeHandler {
    const SPEC: ::idem_runtime::__private::HandlerSpec = ::idem_runtime::__private::HandlerSpec::new(
            "charge",
            ::core::concat!(::core::env!("CARGO_PKG_NAME"), "::", "charge"),
            ::idem_runtime::__private::Level::Two,
        )
        .with_key(&["order_no"])
        .with_same(&["amount_cents", "payer.iban"]);
    type Message = Order;
    type Decode = ::idem_runtime::__private::Json;
    type Work = Tx<Postgres>;
    fn key(
        __message: &Self::Message,
        __key: &mut ::idem_runtime::__private::KeyEncoder,
    ) {
        __key.part(&__message.order_no);
    }
    fn same(
        __message: &Self::Message,
        __same: &mut ::idem_runtime::__private::Fingerprint,
    ) {
        __same.field("amount_cents", &__message.amount_cents);
        __same.field("payer.iban", &__message.payer.iban);
    }
    fn call<'a>(
        __work: &'a mut Self::Work,
        __message: Self::Message,
        __context: &'a ::idem_runtime::__private::Context,
    ) -> ::idem_runtime::__private::Called<'a> {
        ::core::result::Result::Ok(
            ::idem_runtime::__private::replay(charge(__work, __message)),
        )
    }
}
///The handler `charge`, to register with a consumer.
#[allow(missing_copy_implementations, missing_debug_implementations)]
struct ChargeHandler;
