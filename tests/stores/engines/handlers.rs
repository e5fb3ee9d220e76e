//! The handlers of one engine, by the same attribute and the same SQL.

/// They send their statements by functions that are beside them: `insert`, `insert_once`, `run` and
/// `count_effects`.
macro_rules! handlers {
    ($store:ty) => {
        use std::time::Duration;

        use idem_runtime::outcome::Reply;
        use idem_runtime::{Failure, State, Tx, idempotent};
        use tokio::time::sleep;

        use crate::engines::{Gate, Order, Priced, Then, is_dropped_after};

        #[idempotent(key = "customer_id, external_ref", scope = "test.place")]
        pub(crate) async fn by_key(
            tx: &mut Tx<$store>,
            order: Order,
            State(gate): State<Gate>,
            State(store): State<$store>,
        ) -> Result<(), Failure> {
            insert_and(tx, order, gate, &store).await
        }

        /// Returns another number each time that it runs.
        #[idempotent(
            key = "customer_id, external_ref",
            same = "amount_cents, currency",
            replay,
            scope = "test.receipt"
        )]
        pub(crate) async fn receipt(tx: &mut Tx<$store>, order: Priced) -> Result<i64, Failure> {
            insert(tx, order.customer_id, &order.external_ref).await?;
            Ok(fastrand::i64(..))
        }

        /// The same scope as `by_key`: what one has done, the other knows.
        #[idempotent(key = "customer_id, external_ref", batch, scope = "test.place")]
        pub(crate) async fn all_at_once(
            tx: &mut Tx<$store>,
            orders: Vec<Order>,
            State(gate): State<Gate>,
            State(store): State<$store>,
        ) -> Result<(), Failure> {
            gate.batches.lock().expect("nobody panics with it").push(orders.len());
            for order in orders {
                insert_and(tx, order, gate.clone(), &store).await?;
            }
            Ok(())
        }

        #[idempotent(
            key = "customer_id, external_ref",
            same = "amount_cents, currency",
            replay,
            batch,
            scope = "test.receipt"
        )]
        pub(crate) async fn receipts(
            tx: &mut Tx<$store>,
            orders: Vec<Priced>,
        ) -> Result<Vec<i64>, Failure> {
            for order in &orders {
                insert(tx, order.customer_id, &order.external_ref).await?;
            }
            let missing = usize::from(orders.iter().any(|order| order.amount_cents == 13));
            Ok((missing..orders.len()).map(|_| fastrand::i64(..)).collect())
        }

        /// `by_key` after it was renamed.
        #[idempotent(
            key = "customer_id, external_ref",
            scope = "test.place.renamed",
            was = "test.place"
        )]
        pub(crate) async fn renamed(
            tx: &mut Tx<$store>,
            order: Order,
            State(gate): State<Gate>,
            State(store): State<$store>,
        ) -> Result<(), Failure> {
            insert_and(tx, order, gate, &store).await
        }

        /// `receipts` after it was renamed twice.
        #[idempotent(
            key = "customer_id, external_ref",
            same = "amount_cents, currency",
            replay,
            batch,
            scope = "test.receipt.third",
            was = "test.receipt, test.receipt.second"
        )]
        pub(crate) async fn renamed_receipts(
            tx: &mut Tx<$store>,
            orders: Vec<Priced>,
        ) -> Result<Vec<i64>, Failure> {
            for order in &orders {
                insert(tx, order.customer_id, &order.external_ref).await?;
            }
            Ok(orders.iter().map(|_| fastrand::i64(..)).collect())
        }

        /// Its own table says what was done. It inserts twice for 13 cents, breaks another constraint
        /// for 14, and ends its transaction for 15.
        #[idempotent(
            key = "customer_id, external_ref",
            constraint = "orders_once_uq",
            same = "amount_cents, currency",
            scope = "test.guarded"
        )]
        pub(crate) async fn guarded(tx: &mut Tx<$store>, order: Priced) -> Result<(), Failure> {
            insert(tx, order.customer_id, &order.external_ref).await?;
            insert_once(tx, &order).await?;
            match order.amount_cents {
                13 => insert_once(tx, &order).await?,
                14 => run(tx, "INSERT INTO invoices (number) VALUES (1)".to_owned()).await?,
                15 => run(tx, "COMMIT".to_owned()).await?,
                _ => {}
            }
            Ok(())
        }

        #[idempotent(key = "customer_id", replay, scope = "test.verbose")]
        pub(crate) async fn verbose(tx: &mut Tx<$store>, order: Priced) -> Result<String, Failure> {
            insert(tx, order.customer_id, &order.external_ref).await?;
            Ok("x".repeat(Reply::SIZE_MAX))
        }

        #[idempotent(level = 1, scope = "test.by_message_id")]
        pub(crate) async fn by_message_id(
            tx: &mut Tx<$store>,
            order: Order,
            State(gate): State<Gate>,
            State(store): State<$store>,
        ) -> Result<(), Failure> {
            insert_and(tx, order, gate, &store).await
        }

        #[idempotent(level = 0, scope = "test.idempotent")]
        pub(crate) async fn naturally(
            tx: &mut Tx<$store>,
            order: Order,
            State(gate): State<Gate>,
            State(store): State<$store>,
        ) -> Result<(), Failure> {
            insert_and(tx, order, gate, &store).await
        }

        async fn insert_and(
            tx: &mut Tx<$store>,
            order: Order,
            gate: Gate,
            store: &$store,
        ) -> Result<(), Failure> {
            insert(tx, order.customer_id, &order.external_ref.replace('\0', "<NUL>")).await?;
            match order.then {
                Then::Ok => {}
                Then::Fail => return Err("the shop is closed".into()),
                Then::Reject => return Err(Failure::reject("UnknownCustomer", "no customer 7")),
                Then::Panic => panic!("boom"),
                Then::Wait => gate.pass().await,
                Then::WaitAndFail => {
                    gate.pass().await;
                    return Err("the shop has closed".into());
                }
                Then::Run(sql) => run(tx, sql).await?,
                Then::Ignore(sql) => drop(run(tx, sql).await.expect_err("the statement fails")),
                Then::RunAndFail(sql) => {
                    run(tx, sql).await?;
                    return Err("the shop is closed".into());
                }
                Then::Idle { sql, millis } => {
                    run(tx, sql).await?;
                    sleep(Duration::from_millis(millis)).await;
                }
                Then::Cross { first, second, ignore } => {
                    run(tx, first).await?;
                    gate.pass().await;
                    match run(tx, second).await {
                        Err(error) if !ignore => return Err(error.into()),
                        Err(_) | Ok(()) => {}
                    }
                }
                Then::Hurry { polls } => {
                    if is_dropped_after(polls, count_effects(tx)).await {
                        gate.arrived.add_permits(1);
                    }
                }
                Then::Insert(text) => insert(tx, order.customer_id, &text).await?,
                Then::ReadElsewhere => {
                    read_elsewhere(&store).await?;
                }
                Then::ReadAndWrite => {
                    let amount = read_balance(tx).await?;
                    sleep(Duration::from_millis(1)).await;
                    let write = format!("UPDATE balances SET amount = {} WHERE id = 1", amount + 1);
                    run(tx, write).await?;
                }
            }
            Ok(())
        }
    };
}
pub(crate) use handlers;

/// The functions of an engine of sqlx.
macro_rules! statements {
    ($store:ty, $insert:literal, $insert_once:literal) => {
        use sqlx::AssertSqlSafe;

        async fn insert(tx: &mut Tx<$store>, customer: i64, text: &str) -> Result<(), sqlx::Error> {
            sqlx::query($insert).bind(customer).bind(text).execute(&mut **tx).await?;
            Ok(())
        }

        async fn insert_once(tx: &mut Tx<$store>, order: &Priced) -> Result<(), sqlx::Error> {
            sqlx::query($insert_once)
                .bind(order.customer_id)
                .bind(&order.external_ref)
                .bind(order.amount_cents)
                .bind(&order.currency)
                .execute(&mut **tx)
                .await?;
            Ok(())
        }

        async fn run(tx: &mut Tx<$store>, sql: String) -> Result<(), sqlx::Error> {
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut **tx).await?;
            Ok(())
        }

        async fn read_elsewhere(store: &$store) -> Result<(), sqlx::Error> {
            sqlx::query("SELECT count(*) FROM effects").fetch_one(store.pool()).await?;
            Ok(())
        }

        async fn read_balance(tx: &mut Tx<$store>) -> Result<i64, sqlx::Error> {
            let read = "SELECT amount FROM balances WHERE id = 1";
            sqlx::query_scalar(read).fetch_one(&mut **tx).await
        }

        async fn count_effects(tx: &mut Tx<$store>) -> Result<(), sqlx::Error> {
            sqlx::query("SELECT count(*) FROM effects").fetch_one(&mut **tx).await?;
            Ok(())
        }
    };
}
pub(crate) use statements;
