#[allow(clippy::unused_async)]
pub(crate) async fn set_price(
    price: Price,
    State(cache): State<Cache>,
) -> Result<(), Failure> {
    cache.set(price).await
}
#[automatically_derived]
#[allow(deprecated)]
impl ::idem_runtime::__private::Definition for SetPriceHandler {
    const SPEC: ::idem_runtime::__private::HandlerSpec = ::idem_runtime::__private::HandlerSpec::new(
        "set_price",
        ::core::concat!(::core::env!("CARGO_PKG_NAME"), "::", "set_price"),
        ::idem_runtime::__private::Level::Zero,
    );
    type Message = Price;
    type Decode = ::idem_runtime::__private::Json;
    type Work = ::idem_runtime::__private::NoTransaction;
    fn require(__requirements: &mut ::idem_runtime::__private::Requirements) {
        <State<
            Cache,
        > as ::idem_runtime::__private::FromContext<'_>>::require(__requirements);
    }
    fn call<'a>(
        __work: &'a mut Self::Work,
        __message: Self::Message,
        __context: &'a ::idem_runtime::__private::Context,
    ) -> ::idem_runtime::__private::Called<'a> {
        ::core::result::Result::Ok(
            ::idem_runtime::__private::forget(
                set_price(
                    __message,
                    <State<
                        Cache,
                    > as ::idem_runtime::__private::FromContext<
                        '_,
                    >>::from_context(__context)?,
                ),
            ),
        )
    }
}
///The handler `set_price`, to register with a consumer.
#[allow(missing_copy_implementations, missing_debug_implementations)]
pub(crate) struct SetPriceHandler;
