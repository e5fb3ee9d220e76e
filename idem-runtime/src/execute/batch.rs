//! Many deliveries of one handler in one transaction, and one by one where that cannot be.

use std::collections::HashSet;

use super::{
    Identity, Proof, contained, execute, is_provable, met, not_committed, not_started, prepare,
};
use crate::handler::{Context, Handler};
use crate::key::Digest;
use crate::outcome::{Outcome, Reply};
use crate::store::{Claim, Claimed, Fault, Store, StoreError, Work};

/// Handles many deliveries of one handler, and says what each came to, in their order.
///
/// All that are new are claimed in one statement, handled in one transaction and committed together:
/// a crash leaves all of them done or none. A handler that is declared with `batch` is called once,
/// with all of them; any other is called for one after the other.
///
/// Where that cannot be, since a handler failed or a key is busy, nothing is committed, and the
/// deliveries are [executed](execute()) one by one: one bad message costs its neighbours time, and
/// nothing else. So is a delivery whose key comes earlier in the batch.
pub async fn execute_batch<H: Handler<S>, S: Store>(
    store: &S,
    contexts: &[Context],
) -> Vec<Outcome> {
    let mut outcomes = Vec::with_capacity(contexts.len());
    for (outcome, context) in together::<H, S>(store, contexts).await.into_iter().zip(contexts) {
        outcomes.push(match outcome {
            Some(outcome) => outcome,
            None => execute::<H, S>(store, context).await,
        });
    }
    outcomes
}

/// One of the deliveries that are tried together; its message is kept apart.
struct Member<'a> {
    index: usize,
    context: &'a Context,
    identity: Identity,
}

impl Member<'_> {
    /// One for each scope of the handler.
    fn claims(&self) -> &[Claim] {
        match &self.identity {
            Identity::Claims(claims) => claims,
            Identity::None | Identity::Guarded(_) => &[],
        }
    }
}

/// What the transaction came to, by the deliveries' indexes, if it commits.
#[derive(Default)]
struct Ran {
    new: Vec<(usize, Option<Reply>)>,
    earlier: Vec<(usize, Outcome)>,
}

/// Tries all in one transaction. Without an outcome is what is still to be executed alone.
async fn together<H: Handler<S>, S: Store>(
    store: &S,
    contexts: &[Context],
) -> Vec<Option<Outcome>> {
    let mut outcomes: Vec<Option<Outcome>> = contexts.iter().map(|_| None).collect();
    let (messages, members) = gather::<H, S>(contexts, &mut outcomes);
    let indexes: Vec<usize> = members.iter().map(|member| member.index).collect();
    if indexes.len() < 2 {
        return outcomes;
    }
    let mut put = |index: usize, outcome: Outcome| outcomes[index] = Some(outcome);
    let mut work = match H::Work::begin(store).await {
        Ok(work) => work,
        Err(error) => {
            indexes.into_iter().for_each(|index| put(index, not_started(error.again())));
            return outcomes;
        }
    };
    let Some(ran) = run::<H, S>(&mut work, messages, members).await else {
        // What the handler has committed by itself may be any of them.
        if let Err(error) = work.rollback().await {
            indexes.into_iter().for_each(|index| put(index, not_committed(error.again())));
        }
        return outcomes;
    };
    let committed = match ran.new.is_empty() {
        true => work.rollback().await,
        false => work.commit(store).await,
    };
    match committed {
        Ok(()) => {
            ran.earlier.into_iter().for_each(|(index, outcome)| put(index, outcome));
            for (index, reply) in ran.new {
                put(index, Outcome::Done(Proof::ours(reply)));
            }
        }
        Err(error) => match error.fault() {
            Fault::Contention | Fault::Unavailable | Fault::Refused | Fault::Unstorable => {}
            Fault::InDoubt | Fault::Broken => {
                ran.new.iter().for_each(|(index, _)| put(*index, not_committed(error.again())));
            }
        },
    }
    outcomes
}

/// Decodes the messages. A copy of one earlier in the batch waits until that one is done.
fn gather<'a, H: Handler<S>, S: Store>(
    contexts: &'a [Context],
    outcomes: &mut [Option<Outcome>],
) -> (Vec<H::Message>, Vec<Member<'a>>) {
    let mut seen: HashSet<Digest> = HashSet::new();
    let (mut messages, mut members) = (Vec::new(), Vec::new());
    for ((index, context), outcome) in contexts.iter().enumerate().zip(outcomes) {
        match prepare::<H, S>(context.delivery()) {
            Ok((message, identity)) => {
                let member = Member { index, context, identity };
                if member.claims().iter().all(|claim| seen.insert(claim.digest)) {
                    messages.push(message);
                    members.push(member);
                }
            }
            Err(refused) => *outcome = Some(refused),
        }
    }
    (messages, members)
}

/// Claims, handles, and keeps the replies. `None` if it cannot be done together, for whatever
/// reason: it shows itself again when the deliveries are executed one by one.
async fn run<H: Handler<S>, S: Store>(
    work: &mut H::Work,
    messages: Vec<H::Message>,
    members: Vec<Member<'_>>,
) -> Option<Ran> {
    let mut ran = Ran::default();
    let earlier = take_all::<H, S>(work, &members).await?;
    let (mut new, mut new_messages, mut contexts) = (vec![], vec![], vec![]);
    for ((message, member), earlier) in messages.into_iter().zip(members).zip(earlier) {
        match earlier {
            None => {
                contexts.push(member.context);
                new_messages.push(message);
                new.push(member);
            }
            Some(outcome) => ran.earlier.push((member.index, outcome)),
        }
    }
    if new.is_empty() {
        return Some(ran);
    }
    let limit = contexts.iter().filter_map(|context| context.handler_timeout()).min();
    let called = async { H::call_batch(work, new_messages, &contexts)?.await };
    let replies = contained(called, limit).await.ok()?;
    keep(work, &new, &replies).await.ok()?;
    ran.new = new.into_iter().map(|member| member.index).zip(replies).collect();
    Some(ran)
}

/// Takes all that is new, and says what the others came to.
///
/// The scopes of the handler come one after the other, and a member that was handled under one of
/// them is claimed under no other.
async fn take_all<H: Handler<S>, S: Store>(
    work: &mut H::Work,
    members: &[Member<'_>],
) -> Option<Vec<Option<Outcome>>> {
    let mut earlier: Vec<Option<Outcome>> = members.iter().map(|_| None).collect();
    if members.iter().any(|member| matches!(member.identity, Identity::Guarded(_))) {
        work.mark().await.ok()?;
    }
    let scopes = members.iter().map(|member| member.claims().len()).max().unwrap_or(0);
    for scope in 0..scopes {
        let mut taken: Vec<_> = members
            .iter()
            .zip(&mut earlier)
            .filter(|(_, earlier)| earlier.is_none())
            .filter_map(|(member, earlier)| Some((member, member.claims().get(scope)?, earlier)))
            .collect();
        if taken.is_empty() {
            break;
        }
        let claims: Vec<&Claim> = taken.iter().map(|(_, claim, _)| *claim).collect();
        let claimed = work.claim_many(&claims).await.ok()?;
        for ((member, claim, earlier), claimed) in taken.iter_mut().zip(claimed) {
            match claimed {
                Claimed::Ours => is_provable(work, claim, member.context.delivery()).await.ok()?,
                // It is claimed under an earlier scope by now, which is not to be committed.
                Claimed::Before(_) if scope > 0 => return None,
                Claimed::Before(before) => **earlier = Some(met(claim, before)),
                Claimed::Busy => return None,
            }
        }
    }
    Some(earlier)
}

/// Keeps the replies with all claims of their messages.
async fn keep<S: Store>(
    work: &mut impl Work<S>,
    new: &[Member<'_>],
    replies: &[Option<Reply>],
) -> Result<(), StoreError> {
    let kept: Vec<(Digest, &Reply)> = new
        .iter()
        .zip(replies)
        .filter_map(|(member, reply)| Some((member, reply.as_ref()?)))
        .flat_map(|(member, reply)| member.claims().iter().map(move |claim| (claim.digest, reply)))
        .collect();
    if kept.is_empty() { Ok(()) } else { work.keep(&kept).await }
}
