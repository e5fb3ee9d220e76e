#[allow(clippy::unused_async)]
/// Places an order once.
#[tracing::instrument(skip_all)]
pub async fn place_order(
    tx: &mut Tx<Postgres>,
    PlaceOrder { customer_id, .. }: PlaceOrder,
    delivery: &Delivery,
    State(rates): State<Rates>,
) -> Result<(), Failure> {
    insert(tx, customer_id, rates).await?;
    Ok(())
}
#[automatically_derived]
#[allow(deprecated)]
impl ::idem_runtime::__private::Definition for PlaceOrderHandler {
    const SPEC: ::idem_runtime::__private::HandlerSpec = ::idem_runtime::__private::HandlerSpec::new(
            "place_order",
            "orders.place",
            ::idem_runtime::__private::Level::Two,
        )
        .with_key(&["customer_id", "address.postcode"]);
    type Message = PlaceOrder;
    type Decode = ::idem_runtime::__private::Json;
    type Work = Tx<Postgres>;
    fn key(
        __message: &Self::Message,
        __key: &mut ::idem_runtime::__private::KeyEncoder,
    ) {
        __key.part(&__message.customer_id);
        __key.part(&__message.address.postcode);
    }
    fn require(__requirements: &mut ::idem_runtime::__private::Requirements) {
        <&Delivery as ::idem_runtime::__private::FromContext<
            '_,
        >>::require(__requirements);
        <State<
            Rates,
        > as ::idem_runtime::__private::FromContext<'_>>::require(__requirements);
    }
    fn call<'a>(
        __work: &'a mut Self::Work,
        __message: Self::Message,
        __context: &'a ::idem_runtime::__private::Context,
    ) -> ::idem_runtime::__private::Called<'a> {
        ::core::result::Result::Ok(
            ::idem_runtime::__private::forget(
                place_order(
                    __work,
                    __message,
                    <&Delivery as ::idem_runtime::__private::FromContext<
                        '_,
                    >>::from_context(__context)?,
                    <State<
                        Rates,
                    > as ::idem_runtime::__private::FromContext<
                        '_,
                    >>::from_context(__context)?,
                ),
            ),
        )
    }
}
///The handler `place_order`, to register with a consumer.
#[allow(missing_copy_implementations, missing_debug_implementations)]
pub struct PlaceOrderHandler;
