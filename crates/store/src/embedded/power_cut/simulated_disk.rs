//! A disk whose syncs fail and whose power is cut, by a seed.
//!
//! The system holds blocks of 4 KiB, and writes each at any time, in any order; the disk writes sectors of 512 bytes,
//! and a block that it was writing when the power was cut is torn between them. The length of the file is in the file
//! system's journal, which keeps the order and is not lost by a failed sync.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use fastrand::Rng;
use redb::StorageBackend;

const BLOCK: usize = 4096;
const SECTOR: usize = 512;

/// What the system does with the blocks of which a sync has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LostBlocks {
    /// It shows them, and counts them as written: ext4, XFS.
    StayReadable,
    /// It drops them.
    Vanish,
    /// It shows some, and drops them later.
    Either,
}

/// What happens to a process.
#[derive(Clone, Debug)]
pub(super) struct Fate {
    /// It ends before its next change of the disk, after so many.
    pub(super) changes: u64,
    /// Which of its syncs fail.
    pub(super) failing_syncs: Vec<u64>,
    pub(super) lost_blocks: LostBlocks,
}

#[derive(Clone, Debug)]
pub(super) struct SimulatedDisk(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    rng: Rng,
    fate: Fate,
    changes: u64,
    syncs: u64,
    /// Syncs that have failed, of all processes.
    failed_syncs: u64,
    is_dead: bool,
    /// What the file reads as.
    readable: Vec<u8>,
    /// What is on the disk.
    durable: Vec<u8>,
    /// By block, what was written to it and not synced since, in order.
    unsynced: BTreeMap<usize, Vec<Vec<u8>>>,
    /// The lengths that the file has had since the last sync, in order.
    lengths: Vec<usize>,
}

impl SimulatedDisk {
    /// With one file, which is synced.
    pub(super) fn new(file: Vec<u8>, seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            rng: Rng::with_seed(seed),
            fate: Fate { changes: 0, failing_syncs: Vec::new(), lost_blocks: LostBlocks::Vanish },
            changes: 0,
            syncs: 0,
            failed_syncs: 0,
            is_dead: true,
            readable: file.clone(),
            durable: file,
            unsynced: BTreeMap::new(),
            lengths: Vec::new(),
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// A process begins.
    pub(super) fn begin(&self, fate: Fate) {
        let mut state = self.state();
        (state.fate, state.changes, state.syncs, state.is_dead) = (fate, 0, 0, false);
    }

    /// The process is killed, if it has not ended yet: from now on it changes nothing.
    pub(super) fn kill(&self) {
        self.state().is_dead = true;
    }

    pub(super) fn is_dead(&self) -> bool {
        self.state().is_dead
    }

    pub(super) fn failed_syncs(&self) -> u64 {
        self.state().failed_syncs
    }

    /// The power is cut, and comes back.
    pub(super) fn cut(&self) {
        self.state().cut();
    }
}

impl State {
    /// Before each change.
    fn change(&mut self) -> io::Result<()> {
        self.changes += 1;
        self.is_dead |= self.changes > self.fate.changes;
        self.alive()
    }

    fn alive(&self) -> io::Result<()> {
        if self.is_dead { Err(io::Error::other("the process has ended")) } else { Ok(()) }
    }

    fn write(&mut self, offset: usize, data: &[u8]) -> io::Result<()> {
        let end = offset + data.len();
        let written = self.readable.get_mut(offset..end);
        written.ok_or(io::ErrorKind::UnexpectedEof)?.copy_from_slice(data);
        for block in offset / BLOCK..end.div_ceil(BLOCK) {
            let content = self.readable[block * BLOCK..(block + 1) * BLOCK].to_vec();
            self.unsynced.entry(block).or_default().push(content);
        }
        Ok(())
    }

    fn set_len(&mut self, length: usize) {
        assert_eq!(length % BLOCK, 0, "redb writes whole blocks");
        self.readable.resize(length, 0);
        self.unsynced.retain(|block, _| block * BLOCK < length);
        self.lengths.push(length);
    }

    fn sync(&mut self) -> io::Result<()> {
        self.syncs += 1;
        let fails = self.fate.failing_syncs.contains(&self.syncs);
        if fails {
            self.failed_syncs += 1;
            self.lose();
            return Err(io::Error::other("the sync failed"));
        }
        self.set_durable_length(self.lengths.len());
        for (block, mut versions) in std::mem::take(&mut self.unsynced) {
            self.set_durable(block, &versions.pop().unwrap());
        }
        Ok(())
    }

    /// Some blocks reach the disk, the others do not, and all count as written.
    fn lose(&mut self) {
        let reached = self.rng.f64();
        for (block, versions) in std::mem::take(&mut self.unsynced) {
            if self.rng.f64() < reached && (block + 1) * BLOCK <= self.durable.len() {
                self.set_durable(block, versions.last().unwrap());
            } else if match self.fate.lost_blocks {
                LostBlocks::StayReadable => false,
                LostBlocks::Vanish => true,
                LostBlocks::Either => self.rng.bool(),
            } {
                self.drop_block(block);
            }
        }
    }

    /// Memory is short: blocks that count as written are dropped.
    fn drop_some(&mut self) {
        if self.fate.lost_blocks != LostBlocks::StayReadable && self.rng.u8(..) < 8 {
            let block = self.rng.usize(..self.readable.len() / BLOCK);
            if !self.unsynced.contains_key(&block) {
                self.drop_block(block);
            }
        }
    }

    fn drop_block(&mut self, block: usize) {
        let place = block * BLOCK..(block + 1) * BLOCK;
        match self.durable.get(place.clone()) {
            Some(durable) => self.readable[place].copy_from_slice(durable),
            None => self.readable[place].fill(0),
        }
    }

    fn set_durable(&mut self, block: usize, content: &[u8]) {
        self.durable[block * BLOCK..(block + 1) * BLOCK].copy_from_slice(content);
    }

    fn set_durable_length(&mut self, changes: usize) {
        for length in self.lengths.drain(..).take(changes) {
            self.durable.resize(length, 0);
        }
    }

    fn cut(&mut self) {
        let changes = self.rng.usize(..=self.lengths.len());
        self.set_durable_length(changes);
        // From cuts at which nearly nothing had been written to such at which nearly all was.
        let (reached, torn) = (self.rng.f64(), self.rng.f64() / 2.0);
        for (block, versions) in std::mem::take(&mut self.unsynced) {
            if (block + 1) * BLOCK > self.durable.len() {
                continue;
            }
            let is_torn = self.rng.f64() < torn;
            let mut version = self.version(&versions, reached);
            for sector in 0..BLOCK / SECTOR {
                if is_torn {
                    version = self.version(&versions, 0.5);
                }
                if let Some(version) = version {
                    let place = sector * SECTOR..(sector + 1) * SECTOR;
                    let start = block * BLOCK;
                    self.durable[start + place.start..start + place.end]
                        .copy_from_slice(&versions[version][place]);
                }
            }
        }
        self.readable.clone_from(&self.durable);
        self.is_dead = true;
    }

    /// Which version is on the disk; `None`: that of before all.
    fn version(&mut self, versions: &[Vec<u8>], reached: f64) -> Option<usize> {
        (self.rng.f64() < reached).then(|| self.rng.usize(..versions.len()))
    }
}

impl StorageBackend for SimulatedDisk {
    fn len(&self) -> io::Result<u64> {
        let state = self.state();
        state.alive()?;
        Ok(state.readable.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut state = self.state();
        state.alive()?;
        state.drop_some();
        let offset = usize::try_from(offset).unwrap();
        let read = state.readable.get(offset..offset + out.len());
        out.copy_from_slice(read.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut state = self.state();
        state.change()?;
        state.set_len(usize::try_from(length).unwrap());
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.state();
        state.change()?;
        state.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        state.change()?;
        state.write(usize::try_from(offset).unwrap(), data)
    }
}
