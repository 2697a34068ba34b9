//! DEBUG RELOAD: everything is saved, forgotten and loaded again, as if the server had been restarted.
//!
//! Clients are told meanwhile that data is being loaded. Nothing of it is stated to the log or to
//! listeners: what was there before is there again.

use commands::CommandError;
use reactor::workers::available_cores;

use crate::node::Node;
use persistence::checkpointer::Why;
use persistence::recovery::{Place, load_checkpoint};

impl Node {
    /// Saves, unless the last checkpoint is to be taken as it is, forgets everything, and loads. Not for
    /// a thread that is in the store.
    ///
    /// # Errors
    /// What the client is to read. Where it could not be loaded, the store has only a part of it.
    pub(crate) fn reload(&self, saves: bool) -> Result<(), CommandError> {
        if !saves && self.config.current().durability.level.has_log() {
            return Err(CommandError::fixed(
                "ERR DEBUG RELOAD NOSAVE would take back what the log has",
            ));
        }
        self.begin_loading(0);
        // Whoever is in the store now did not see that; who comes later does.
        self.store.handle().exclusive(|_| ());
        // None is begun or ended from here on; one that is just begun makes a checkpoint of what there is by then.
        let is_changing = self.keeper().is_some_and(|it| it.logging().is_changing());
        let reloaded = match is_changing {
            true => Err("the log is just being begun or ended".to_owned()),
            false => self.reload_alone(saves),
        };
        self.end_loading();
        reloaded.map_err(|reason| {
            self.log
                .warning(format_args!("Reloading the data failed: {reason}"));
            CommandError::fixed("ERR Error trying to load the data, check server logs.")
        })
    }

    fn reload_alone(&self, saves: bool) -> Result<(), String> {
        if saves {
            let saved = self.save_for(Why::Reload);
            saved.map_err(|_| "it was not saved".to_owned())?;
        }
        let place = Place::within(&self.config.current().dir);
        let manifest = place.manifest().map_err(|fault| fault.to_string())?;
        let manifest = manifest.ok_or_else(|| "nothing was saved".to_owned())?;
        self.begin_loading(manifest.bytes());
        self.store.handle().exclusive(|handle| handle.flush(None));
        let loaded = load_checkpoint(&self.env, &place, &manifest, available_cores());
        loaded.map_err(|fault| fault.to_string())?;
        if let Some(keeper) = self.keeper() {
            keeper.checkpointer.note_clean(manifest.created_unix_ms);
        }
        Ok(())
    }
}
