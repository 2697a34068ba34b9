//! Strings: bytes or a number at a key.
//!
//! ```text
//!   read     GET MGET STRLEN GETRANGE SUBSTR        change   APPEND SETRANGE
//!   set      SET SETNX SETEX PSETEX GETSET          counter  INCR INCRBY DECR DECRBY
//!   many     MSET MSETNX MSETEX                     float    INCRBYFLOAT
//!   taking   GETDEL GETEX DELIFEQ                   lcs      LCS
//!   expiry   EX PX EXAT PXAT
//! ```
//!
//! # Effects
//! A write states one of a few canonical commands. Replayed in order, they produce the same values,
//! deadlines and encodings:
//!
//! - `SET key value [PXAT ms | KEEPTTL]` for any write of a whole value, including numbers: the
//!   result of an addition, unlike its summand, may be applied twice;
//! - `APPEND` and `SETRANGE` as sent: the value may be large, the added part is not;
//! - `DEL`, `PEXPIREAT key ms` and `PERSIST` if no value changed;
//! - `INCRBYFLOAT key 0` after a `SET` of a text that represents an integer, which `SET` alone
//!   would store as an integer.
//!
//! A command that changed nothing states nothing.

use engine::spec::CommandSpec;

mod change;
mod counter;
pub(super) mod expiry;
mod float;
mod lcs;
mod many;
mod read;
mod set;
pub(super) mod shared;
mod taking;

#[cfg(test)]
mod effect_tests;

/// The rows of this family.
pub const COMMANDS: &[CommandSpec] = &[
    read::GET,
    set::SET,
    set::SETNX,
    set::SETEX,
    set::PSETEX,
    many::MSET,
    many::MSETNX,
    many::MSETEX,
    read::MGET,
    set::GETSET,
    taking::GETDEL,
    taking::GETEX,
    taking::DELIFEQ,
    change::APPEND,
    read::STRLEN,
    read::GETRANGE,
    read::SUBSTR,
    change::SETRANGE,
    counter::INCR,
    counter::INCRBY,
    float::INCRBYFLOAT,
    counter::DECR,
    counter::DECRBY,
    lcs::LCS,
];
