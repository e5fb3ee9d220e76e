::core::compile_error! {
    "`KeyPart` cannot be derived for an enum\nhelp: implement it, and give each variant a text that no renaming changes: `key.part(match self { Self::Euro => \"EUR\" })`"
}
#[automatically_derived]
impl crate::bus::idem::KeyPart for Currency {
    fn encode(&self, _: &mut crate::bus::idem::__private::KeyEncoder) {}
}
::core::compile_error! {
    "`MessageId` needs a template, and `Payment` has none\nhelp: write `#[message_id = \"{order_no}/payment\"]` above the struct"
}
#[automatically_derived]
impl<T> crate::bus::idem::MessageId for Payment<T> {
    #[allow(deprecated)]
    fn message_id(
        &self,
    ) -> ::core::result::Result<
        ::std::string::String,
        crate::bus::idem::__private::MessageIdError,
    > {
        ::core::panic!()
    }
}
