#[automatically_derived]
impl ::idem_runtime::KeyPart for CustomerId {
    #[allow(deprecated)]
    fn encode(&self, __key: &mut ::idem_runtime::__private::KeyEncoder) {
        __key.part(&self.0);
    }
}
#[automatically_derived]
impl<
    'a,
    T: Copy + ::idem_runtime::KeyPart,
    P: ?Sized,
    const N: usize,
> ::idem_runtime::KeyPart for Reference<'a, T, P, N>
where
    T: Send,
{
    #[allow(deprecated)]
    fn encode(&self, __key: &mut ::idem_runtime::__private::KeyEncoder) {
        __key.record(&[&self.customer, &self.r#type, &self.salt]);
    }
}
