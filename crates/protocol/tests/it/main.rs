//! The room from outside: golden vectors, properties, limits, and Redis as the judge.

mod escaped;
mod limits;
mod oracle;
mod replies;
mod requests;
mod session;
