//! What the nodes of a Cluster say about it: the replies to `CLUSTER NODES`, put together. Pure.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use super::{Primary, ServerAddress, Table};

/// A line of `CLUSTER NODES`.
#[derive(Debug)]
struct Line<'a> {
    id: &'a str,
    address: Option<ServerAddress>,
    flags: &'a str,
    primary: &'a str,
    epoch: u64,
    slots: Vec<RangeInclusive<u16>>,
}

impl Line<'_> {
    fn has(&self, flag: &str) -> bool {
        self.flags.split(',').any(|one| one == flag)
    }

    fn owns(&self, slot: u16) -> bool {
        self.slots.iter().any(|slots| slots.contains(&slot))
    }
}

/// The table of these shards, by the replies of some nodes, each with the address that was asked. Where they
/// differ, the node with the highest configuration epoch has the slot: that is how a Cluster itself decides. `None`
/// if no reply names an owner of any shard.
pub(in crate::redis) fn table_of(
    replies: &[(ServerAddress, String)],
    slots: &[u16],
) -> Option<Table> {
    let mut owners: Vec<Option<(u64, Primary)>> = vec![None; slots.len()];
    for (asked, reply) in replies {
        let lines: Vec<Line<'_>> = reply.lines().filter_map(|line| line_of(line, asked)).collect();
        let mut replicas: HashMap<&str, bool> = HashMap::new();
        for line in lines.iter().filter(|line| line.has("slave") || line.has("replica")) {
            *replicas.entry(line.primary).or_default() |= !line.has("fail");
        }
        for (owner, slot) in owners.iter_mut().zip(slots) {
            let Some(line) = lines.iter().find(|line| line.has("master") && line.owns(*slot))
            else {
                continue;
            };
            let Some(address) = line.address.clone() else { continue };
            if owner.as_ref().is_none_or(|(epoch, _)| *epoch < line.epoch) {
                let has_replicas = replicas.get(line.id).copied().unwrap_or_default();
                *owner = Some((line.epoch, Primary { address, has_replicas }));
            }
        }
    }
    if owners.iter().all(Option::is_none) {
        return None;
    }
    let mut table = Table::default();
    for owner in owners {
        let index = owner.map(|(_, primary)| {
            let known = table.primaries.iter().position(|one| one.address == primary.address);
            known.unwrap_or_else(|| {
                table.primaries.push(primary);
                table.primaries.len() - 1
            })
        });
        table.of_shard.push(index);
    }
    Some(table)
}

/// `id address flags primary ping pong epoch link slots…`; the address is `ip:port@bus[,hostname]`.
fn line_of<'a>(line: &'a str, asked: &ServerAddress) -> Option<Line<'a>> {
    let mut words = line.split_ascii_whitespace();
    let [id, address, flags, primary] =
        [words.next()?, words.next()?, words.next()?, words.next()?];
    let epoch = words.nth(2)?.parse().ok()?;
    words.next()?;
    // Slots in brackets are on the move; their owner is still the one that lists them outside.
    let slots = words.filter_map(range_of).collect();
    let (place, names) = address.split_once('@').unwrap_or((address, ""));
    let mut address = ServerAddress::parse(place, asked);
    // A host name is there where the operator prefers it: certificates are checked against it.
    let name = names.split(',').nth(1).filter(|name| !name.is_empty() && !name.contains('='));
    if let (Some(address), Some(name)) = (&mut address, name) {
        name.clone_into(&mut address.host);
    }
    Some(Line { id, address, flags, primary, epoch, slots })
}

fn range_of(word: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    Some(first.parse().ok()?..=last.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "\
aa 10.0.0.1:7000@17000,,shard-id=x myself,master - 0 0 1 connected 0-5460
bb 10.0.0.2:7000@17000,redis-b,shard-id=y master - 0 1 2 connected 5461-10922 [93->-aa]
cc :7000@17000 master,fail - 0 1 3 disconnected 10923-16383
dd 10.0.0.4:7000@17000 slave aa 0 1 1 connected
ee 10.0.0.5:7000@17000 slave,fail bb 0 1 2 connected
";

    fn asked() -> ServerAddress {
        ServerAddress::new("10.0.0.9", 7000)
    }

    fn addresses(table: &Table) -> Vec<String> {
        let shards = 0..table.of_shard.len();
        shards.map(|shard| table.primary_of(shard).unwrap().address.to_string()).collect()
    }

    #[test]
    fn the_owners_of_slots_are_read_with_their_replicas() {
        let table = table_of(&[(asked(), A.to_owned())], &[0, 5_461, 16_383, 5_460]).unwrap();
        assert_eq!(
            addresses(&table),
            ["10.0.0.1:7000", "redis-b:7000", "10.0.0.9:7000", "10.0.0.1:7000"]
        );
        let replicas: Vec<bool> = table.primaries.iter().map(|one| one.has_replicas).collect();
        assert_eq!(replicas, [true, false, false]);
    }

    #[test]
    fn the_highest_epoch_has_the_slot() {
        let later = "dd 10.0.0.4:7000@17000 myself,master - 0 0 7 connected 0-5460\n\
                     aa 10.0.0.1:7000@17000 slave dd 0 0 1 connected\n";
        for replies in [[A, later], [later, A]] {
            let replies = replies.map(|reply| (asked(), reply.to_owned()));
            let table = table_of(&replies, &[1]).unwrap();
            assert_eq!(addresses(&table), ["10.0.0.4:7000"]);
        }
    }

    #[test]
    fn a_slot_without_an_owner_has_none_and_nonsense_is_no_table() {
        let table = table_of(&[(asked(), A.replace("0-5460", ""))], &[0, 6_000]).unwrap();
        assert_eq!(table.of_shard, [None, Some(0)]);
        for reply in ["", "x", "a b c d e f g h i", "aa 1:2@3 master - 0 0 1 connected x-y z"] {
            assert_eq!(table_of(&[(asked(), reply.to_owned())], &[0]), None, "{reply}");
        }
    }
}
