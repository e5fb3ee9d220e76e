//! What the attribute and the derives expand to, from tokens to tokens.

use proc_macro2::TokenStream;
use quote::quote;

use crate::derive::{key_part, message_id};
use crate::expand::idempotent;

fn assert_expands(name: &str, arguments: TokenStream, item: TokenStream) {
    assert_is_recorded(name, &idempotent(arguments, item));
}

/// Compares with `tests/output/<name>.rs`; `IDEM_RECORD=1` writes that file instead.
fn assert_is_recorded(name: &str, expanded: &TokenStream) {
    let expanded = formatted(expanded);
    let path = format!("{}/tests/output/{name}.rs", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("IDEM_RECORD").is_some() {
        std::fs::write(&path, &expanded).expect("the recording can be written");
    }
    let recorded = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(expanded, recorded, "{path} differs; record it anew with IDEM_RECORD=1");
}

fn formatted(tokens: &TokenStream) -> String {
    let file = syn::parse2(tokens.clone()).unwrap_or_else(|error| panic!("{error} in {tokens}"));
    prettyplease::unparse(&file)
}

fn place_order() -> TokenStream {
    quote! {
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
    }
}

#[test]
fn level_two() {
    let arguments =
        quote!(level = 2, key = "customer_id, address.postcode", scope = "orders.place");
    assert_expands("level_two", arguments, place_order());
}

#[test]
fn what_must_agree_and_what_is_replayed() {
    let item = quote! {
        async fn charge(tx: &mut Tx<Postgres>, order: Order) -> Result<Receipt, Failure> {
            record(tx, order).await
        }
    };
    let arguments = quote!(key = "order_no", same(amount_cents, payer.iban), replay);
    assert_expands("same_and_replay", arguments, item);
}

#[test]
fn what_had_another_scope_and_is_no_json() {
    let item = quote! {
        #[cfg(feature = "stock")]
        async fn count(tx: &mut Tx<Postgres>, stock: Stock) -> Result<(), Failure> {
            record(tx, stock).await
        }
    };
    let arguments = quote!(was = "shop::stock, stock", decode = Stock::from_cbor);
    assert_expands("was_and_decode", arguments, item);
}

#[test]
fn a_batch() {
    let item = quote! {
        async fn store(
            tx: &mut Tx<Postgres>,
            entries: Vec<Entry>,
            State(rates): State<Rates>,
        ) -> Result<(), Failure> {
            insert_all(tx, entries, rates).await
        }
    };
    assert_expands("batch", quote!(key = "entry_no", batch), item);
}

#[test]
fn level_one_is_the_default() {
    let item = quote! {
        #[cfg(feature = "mail")]
        async fn send_mail(tx: &mut Tx<Sqlite>, mail: Mail) -> sqlx::Result<()> {
            record(tx, mail).await
        }
    };
    assert_expands("level_one", quote!(), item);
}

#[test]
fn level_zero_without_transaction() {
    let item = quote! {
        pub(crate) async fn set_price(price: Price, State(cache): State<Cache>) -> Result<(), Failure> {
            cache.set(price).await
        }
    };
    assert_expands("level_zero", quote!(level = 0), item);
}

#[test]
fn a_refused_handler_keeps_its_function_and_gets_a_stub() {
    let item = quote! {
        fn book(tx: &mut Tx<Postgres>, shipment: Shipment) -> Result<(), Failure> {
            Ok(())
        }
    };
    assert_expands("refused", quote!(level = 2), item);
}

#[test]
fn an_expansion_is_short() {
    let function = formatted(&place_order()).lines().count();
    let arguments = quote!(key = "customer_id, external_ref");
    let expansion = formatted(&idempotent(arguments, place_order())).lines().count();
    assert!(expansion - function < 60, "{} lines are generated", expansion - function);
}

#[test]
fn another_crate_path_replaces_the_default_everywhere() {
    let arguments = [
        quote!(level = 0),
        quote!(level = 1),
        quote!(key(customer_id)),
        quote!(decode = decode),
        quote!(level = 3),
    ];
    for arguments in arguments {
        let expanded = idempotent(quote!(#arguments, crate = crate::bus::idem), place_order());
        let expanded = expanded.to_string();
        assert!(!expanded.contains("idem_runtime"), "{expanded}");
        assert!(expanded.contains("crate :: bus :: idem :: __private"), "{expanded}");
    }
}

#[test]
fn both_forms_of_a_key_name_the_same_fields() {
    let forms = [
        (quote!(key = "customer_id, address.postcode"), quote!(key(customer_id, address.postcode))),
        (quote!(key = " type , lines.0.1, "), quote!(key(r#type, lines.0.1,))),
        (quote!(key = "0, 1.0"), quote!(key(0, 1.0))),
        (quote!(key = "größe"), quote!(key(größe))),
    ];
    for (text, paths) in forms {
        let [text, paths] = [text, paths].map(|form| idempotent(form, place_order()).to_string());
        assert!(!text.contains("compile_error"), "{text}");
        assert_eq!(text, paths);
    }
}

#[test]
fn fields_that_are_no_paths_are_refused_each_by_name() {
    let fields =
        ["customer.0?", "a b", "a..b", ".a", "a.", "self.a", "_", "-1", "01", "'", "\"", "a()"];
    for field in fields {
        let key = format!("customer_id, {field}");
        let expanded = idempotent(quote!(key = #key), place_order()).to_string();
        let named = format!("key field `{field}` is not a field path");
        assert!(
            expanded.contains(&named.escape_default().to_string().replace("\\'", "'")),
            "{expanded}"
        );
    }
    let expanded = idempotent(quote!(key(a b, c + d)), place_order()).to_string();
    assert_eq!(expanded.matches("is not a field path").count(), 2, "{expanded}");
}

/// The function as an editor needs it while its body is being typed.
#[test]
fn a_half_typed_body_expands_like_a_whole_one() {
    let signature =
        quote!(async fn book(tx: &mut Tx<Postgres>, shipment: Shipment) -> Result<(), Failure>);
    let arguments = quote!(key = "customer_id");
    let whole = idempotent(arguments.clone(), quote!(#signature { Ok(()) })).to_string();
    for body in [quote!({ let x = }), quote!({ shipment. }), quote!({ match })] {
        let half = idempotent(arguments.clone(), quote!(#signature #body)).to_string();
        assert_eq!(half.replace(&body.to_string(), "{ Ok (()) }"), whole);
    }
}

#[test]
fn what_cannot_be_parsed_is_emitted_once_as_it_was() {
    let cases = [
        (
            quote!(
                struct Order {
                    id: i64,
                }
            ),
            1,
        ),
        (
            quote!(
                const LIMIT: u32 = 3;
            ),
            1,
        ),
        // rustc reports these itself.
        (quote!(async fn book(tx: &mut Tx<Postgres>,, shipment) {}), 0),
        (quote!(pub async fn book(tx: &mut Tx<Postgres>, shipment: ) {}), 0),
    ];
    for (item, errors) in cases {
        let expanded = idempotent(quote!(), item.clone()).to_string();
        assert_eq!(expanded.matches(&item.to_string()).count(), 1, "{expanded}");
        assert_eq!(expanded.matches("compile_error").count(), errors, "{expanded}");
    }
}

#[test]
fn every_mistake_is_reported_at_once() {
    let arguments =
        quote!(level = 3, key = "a?, b, b", scop = "x", scope = "", level = 1, crate = idem);
    let item = quote!(unsafe fn book<T>(#[cfg(x)] shipment: &Shipment));
    let expanded = idempotent(arguments, item).to_string();
    let expected = [
        "`level` must be 0, 1 or 2, found `3`",
        "key field `a?` is not a field path",
        "key field `b` is listed twice",
        "unknown argument `scop`",
        "`scope` must not be empty",
        "`level` is set twice",
        "`crate` must be an absolute path, found `idem`",
        "handler `book` must be `async`",
        "handler `book` must not be `unsafe`",
        "handler `book` must not be generic",
        "handler `book` must not have a conditional parameter",
        "handler `book` must take its message by value",
        "handler `book` must return `Result`",
    ];
    for text in expected {
        assert_eq!(expanded.matches(text).count(), 1, "{text} in {expanded}");
    }
    assert_eq!(expanded.matches("compile_error").count(), expected.len(), "{expanded}");
}

#[test]
fn key_parts() {
    let newtype = key_part(quote! {
        struct CustomerId(i64);
    });
    let record = key_part(quote! {
        pub struct Reference<'a, T: Copy, P: ?Sized, const N: usize>
        where
            T: Send,
        {
            customer: Id<T>,
            r#type: &'a str,
            salt: [u8; N],
        }
    });
    assert_is_recorded("key_parts", &quote! { #newtype #record });
}

#[test]
fn message_ids() {
    let expanded = message_id(quote! {
        #[message_id = "{order.0}/{r#type}-payment"]
        #[message_id(crate = crate::bus::idem)]
        struct Payment<T, B> {
            order: (T, u32),
            r#type: String,
            body: B,
        }
    });
    assert!(!expanded.to_string().contains("idem_runtime"), "{expanded}");
    assert_is_recorded("message_ids", &expanded);
}

/// What stands in for a refused derive keeps the uses of the type quiet.
#[test]
fn refused_derives_get_a_stub() {
    let part = key_part(quote! {
        #[key_part(crate = crate::bus::idem)]
        enum Currency {
            Euro,
        }
    });
    let id = message_id(quote! {
        #[message_id(crate = crate::bus::idem)]
        struct Payment<T>(T);
    });
    let expanded = quote! { #part #id };
    assert!(!expanded.to_string().contains("idem_runtime"), "{expanded}");
    assert_is_recorded("refused_derives", &expanded);
}

#[test]
fn every_mistake_of_a_derive_is_reported_at_once() {
    let expanded = message_id(quote! {
        #[message_id = "{a}/{b}/{c.d}"]
        #[message_id = "{e}"]
        #[message_id(crate = idem, path = x)]
        struct Payment {
            #[message_id]
            e: String,
        }
    });
    let expanded = expanded.to_string();
    let expected = [
        "there is no field `a`, expected `e`",
        "there is no field `b`, expected `e`",
        "there is no field `c.d`, expected `e`",
        "`message_id` is set twice",
        "`crate` must be an absolute path, found `idem`",
        "unknown argument `path`, expected `crate`",
        "`#[message_id]` goes on the struct, found it on a field",
    ];
    for text in expected {
        assert_eq!(expanded.matches(text).count(), 1, "{text} in {expanded}");
    }
    assert_eq!(expanded.matches("compile_error").count(), expected.len(), "{expanded}");
}
