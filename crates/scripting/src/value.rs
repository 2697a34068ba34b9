//! The values that a script and the server pass to each other: replies, of a command or of the
//! script.

/// A reply as a tree. Scripts that speak RESP2 see only the first six kinds.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// No value: a null bulk string, a null array, or RESP3's null.
    Nil,
    /// A whole number.
    Integer(i64),
    /// A string of any bytes.
    Bulk(Vec<u8>),
    /// A short text such as `OK`.
    Status(Vec<u8>),
    /// An error's text, its code first, without the leading `-`.
    Error(Vec<u8>),
    /// Values in order.
    Array(Vec<Value>),
    /// Pairs of keys and values.
    Map(Vec<(Value, Value)>),
    /// Values without an order.
    Set(Vec<Value>),
    /// A floating point number.
    Double(f64),
    /// True or false.
    Boolean(bool),
    /// The digits of a number that does not fit in a machine word.
    BigNumber(Vec<u8>),
    /// A text with the three letters that say how to show it.
    Verbatim([u8; 3], Vec<u8>),
}
