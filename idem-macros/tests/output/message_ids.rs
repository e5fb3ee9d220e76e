#[automatically_derived]
impl<T: crate::bus::idem::KeyPart, B> crate::bus::idem::MessageId for Payment<T, B> {
    #[allow(deprecated)]
    fn message_id(
        &self,
    ) -> ::core::result::Result<
        ::std::string::String,
        crate::bus::idem::__private::MessageIdError,
    > {
        crate::bus::idem::__private::message_id(
            &[
                crate::bus::idem::__private::Piece::Field("order.0", &self.order.0),
                crate::bus::idem::__private::Piece::Text("/"),
                crate::bus::idem::__private::Piece::Field("type", &self.r#type),
                crate::bus::idem::__private::Piece::Text("-payment"),
            ],
        )
    }
}
