//! Cold values that a worker reads for its own clients (`crate::tier::RingReads`).

use reactor::Io;

use super::Worker;

impl Worker {
    /// Starts the reads that requests of this turn need, and resumes clients whose values were
    /// read.
    #[inline]
    pub(super) fn read_values(&mut self, io: &mut Io<'_>) {
        let Some(reads) = &mut self.ring_reads else {
            return;
        };
        let mut ready = std::mem::take(&mut self.have_values);
        reads.turn(self.turn_started_ns, &mut ready);
        for id in ready.drain(..) {
            self.resume_one(io, id);
        }
        self.have_values = ready;
    }
}
