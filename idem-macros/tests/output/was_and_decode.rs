#[allow(clippy::unused_async)]
#[cfg(feature = "stock")]
async fn count(tx: &mut Tx<Postgres>, stock: Stock) -> Result<(), Failure> {
    record(tx, stock).await
}
#[cfg(feature = "stock")]
#[automatically_derived]
#[allow(deprecated)]
impl ::idem_runtime::__private::Definition for CountHandler {
    const SPEC: ::idem_runtime::__private::HandlerSpec = ::idem_runtime::__private::HandlerSpec::new(
            "count",
            ::core::concat!(::core::env!("CARGO_PKG_NAME"), "::", "count"),
            ::idem_runtime::__private::Level::One,
        )
        .with_was(&["shop::stock", "stock"]);
    type Message = Stock;
    type Decode = Self;
    type Work = Tx<Postgres>;
    fn call<'a>(
        __work: &'a mut Self::Work,
        __message: Self::Message,
        __context: &'a ::idem_runtime::__private::Context,
    ) -> ::idem_runtime::__private::Called<'a> {
        ::core::result::Result::Ok(
            ::idem_runtime::__private::forget(count(__work, __message)),
        )
    }
}
#[cfg(feature = "stock")]
#[automatically_derived]
impl ::idem_runtime::__private::Decode<
    <Self as ::idem_runtime::__private::Definition>::Message,
> for CountHandler {
    fn decode(
        __delivery: &::idem_runtime::__private::Delivery,
    ) -> ::idem_runtime::__private::Decoded<
        <Self as ::idem_runtime::__private::Definition>::Message,
    > {
        ::idem_runtime::__private::decode::<
            <Self as ::idem_runtime::__private::Definition>::Message,
        >(Stock::from_cbor, __delivery)
    }
}
#[cfg(feature = "stock")]
///The handler `count`, to register with a consumer.
#[allow(missing_copy_implementations, missing_debug_implementations)]
struct CountHandler;
