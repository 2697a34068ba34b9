//! The options of GEOSEARCH and GEORADIUS in all their forms.

use engine::args::Args;
use engine::error::{CommandError, CommandResult};
use structures::SortedSet;
use structures::geo::{Place, Shape, ShapeKind};

use super::{number, place, unit_m};

/// The form of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// GEORADIUS, and whether it may store.
    Radius { stores: bool },
    /// GEORADIUSBYMEMBER, and whether it may store.
    RadiusByMember { stores: bool },
    /// GEOSEARCH.
    Search,
    /// GEOSEARCHSTORE.
    SearchStore,
}

/// The order of the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Nearest,
    Farthest,
}

/// The parsed query.
#[derive(Clone, Copy, Debug)]
pub(super) struct Query<'a> {
    center: Option<Place>,
    kind: Option<ShapeKind>,
    /// Metres in the unit of lengths and distances.
    pub(super) unit_m: f64,
    pub(super) with_distance: bool,
    pub(super) with_score: bool,
    pub(super) with_place: bool,
    pub(super) order: Option<Order>,
    /// 0 for all.
    pub(super) count: usize,
    /// ANY: takes the first found, not the nearest.
    pub(super) takes_any: bool,
    /// The key where the result is stored.
    pub(super) target: Option<&'a [u8]>,
    pub(super) stores_distances: bool,
}

impl<'a> Query<'a> {
    /// Parses the arguments after the source key. Looks up members in `set`; without a set, all
    /// arguments are still checked.
    ///
    /// # Errors
    /// The errors of Redis, in its order.
    pub(super) fn parse(
        args: &mut Args<'a>,
        form: Form,
        target: Option<&'a [u8]>,
        set: Option<&SortedSet>,
    ) -> Result<Self, CommandError> {
        let mut query = Self {
            center: None,
            kind: None,
            unit_m: 1.0,
            with_distance: false,
            with_score: false,
            with_place: false,
            order: None,
            count: 0,
            takes_any: false,
            target,
            stores_distances: false,
        };
        let mut from = Given::default();
        match form {
            Form::Radius { .. } => {
                query.center = Some(place(args)?);
                query.read_radius(args)?;
            }
            Form::RadiusByMember { .. } => query.read_member_and_radius(args, set)?,
            Form::Search | Form::SearchStore => {}
        }
        while args.remaining() > 0 {
            if !(query.take_plain(args)?
                || query.take_store(args, form)?
                || query.take_shape(args, form, set, &mut from)?)
            {
                return Err(CommandError::Syntax);
            }
        }
        query.check(form, from, args)?;
        // COUNT means the nearest, except with ANY.
        if query.count > 0 && query.order.is_none() && !query.takes_any {
            query.order = Some(Order::Nearest);
        }
        Ok(query)
    }

    /// Returns the area, or `None` if there was no set to look up members in.
    pub(super) fn shape(&self) -> Option<Shape> {
        Some(Shape {
            center: self.center?,
            kind: self.kind?,
        })
    }

    fn read_member_and_radius(
        &mut self,
        args: &mut Args<'a>,
        set: Option<&SortedSet>,
    ) -> CommandResult {
        let member = args.bytes()?;
        let Some(set) = set else {
            // Without a set, the radius is not checked.
            args.bytes()?;
            args.bytes()?;
            return Ok(());
        };
        self.center = Some(member_place(set, member)?);
        self.read_radius(args)
    }

    fn read_radius(&mut self, args: &mut Args<'a>) -> CommandResult {
        let radius = length(args, "ERR need numeric radius")?;
        if radius < 0.0 {
            return Err(CommandError::fixed("ERR radius cannot be negative"));
        }
        self.unit_m = unit_m(args.bytes()?)?;
        let radius_m = radius * self.unit_m;
        self.kind = Some(ShapeKind::Circle { radius_m });
        Ok(())
    }

    fn read_box(&mut self, args: &mut Args<'a>) -> CommandResult {
        let width = length(args, "ERR need numeric width")?;
        let height = length(args, "ERR need numeric height")?;
        if width < 0.0 || height < 0.0 {
            return Err(CommandError::fixed(
                "ERR height or width cannot be negative",
            ));
        }
        self.unit_m = unit_m(args.bytes()?)?;
        self.kind = Some(ShapeKind::Box {
            width_m: width * self.unit_m,
            height_m: height * self.unit_m,
        });
        Ok(())
    }

    /// Takes an option that is common to all forms.
    fn take_plain(&mut self, args: &mut Args<'a>) -> Result<bool, CommandError> {
        match () {
            () if args.take_word("WITHDIST") => self.with_distance = true,
            () if args.take_word("WITHHASH") => self.with_score = true,
            () if args.take_word("WITHCOORD") => self.with_place = true,
            () if args.take_word("ANY") => self.takes_any = true,
            () if args.take_word("ASC") => self.order = Some(Order::Nearest),
            () if args.take_word("DESC") => self.order = Some(Order::Farthest),
            () if args.remaining() > 1 && args.take_word("COUNT") => {
                let count = usize::try_from(args.integer()?).ok();
                let count = count.filter(|count| *count > 0);
                self.count = count.ok_or(CommandError::fixed("ERR COUNT must be > 0"))?;
            }
            () => return Ok(false),
        }
        Ok(true)
    }

    /// Takes an option about the destination of the result.
    fn take_store(&mut self, args: &mut Args<'a>, form: Form) -> Result<bool, CommandError> {
        let may_store = matches!(
            form,
            Form::Radius { stores: true } | Form::RadiusByMember { stores: true }
        );
        match () {
            () if form == Form::SearchStore && args.take_word("STOREDIST") => {
                self.stores_distances = true;
            }
            () if may_store && args.remaining() > 1 && args.take_word("STORE") => {
                self.target = Some(args.bytes()?);
                self.stores_distances = false;
            }
            () if may_store && args.remaining() > 1 && args.take_word("STOREDIST") => {
                self.target = Some(args.bytes()?);
                self.stores_distances = true;
            }
            () => return Ok(false),
        }
        Ok(true)
    }

    /// Takes an option of GEOSEARCH about the area.
    fn take_shape(
        &mut self,
        args: &mut Args<'a>,
        form: Form,
        set: Option<&SortedSet>,
        given: &mut Given,
    ) -> Result<bool, CommandError> {
        if !matches!(form, Form::Search | Form::SearchStore) {
            return Ok(false);
        }
        let left = args.remaining();
        match () {
            () if left > 1 && !given.place && args.take_word("FROMMEMBER") => {
                given.member = true;
                let member = args.bytes()?;
                if let Some(set) = set {
                    self.center = Some(member_place(set, member)?);
                }
            }
            () if left > 2 && !given.member && args.take_word("FROMLONLAT") => {
                given.place = true;
                self.center = Some(place(args)?);
            }
            () if left > 2 && !given.is_box && args.take_word("BYRADIUS") => {
                given.circle = true;
                self.read_radius(args)?;
            }
            () if left > 3 && !given.circle && args.take_word("BYBOX") => {
                given.is_box = true;
                self.read_box(args)?;
            }
            () => return Ok(false),
        }
        Ok(true)
    }

    /// Refuses options that contradict each other.
    fn check(&self, form: Form, given: Given, args: &Args<'_>) -> CommandResult {
        let is_search = matches!(form, Form::Search | Form::SearchStore);
        if self.target.is_some() && (self.with_distance || self.with_score || self.with_place) {
            let who = if is_search {
                "GEOSEARCHSTORE"
            } else {
                "STORE option in GEORADIUS"
            };
            return Err(CommandError::Text(
                format!(
                    "ERR {who} is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
                )
                .into(),
            ));
        }
        let exactly_one = |of: &str| {
            let mut text = format!("ERR exactly one of {of} can be specified for ").into_bytes();
            text.extend_from_slice(args.request().name());
            Err(CommandError::Bytes(text))
        };
        if is_search && !(given.member || given.place) {
            return exactly_one("FROMMEMBER or FROMLONLAT");
        }
        if is_search && !(given.circle || given.is_box) {
            return exactly_one("BYRADIUS and BYBOX");
        }
        if self.takes_any && self.count == 0 {
            return Err(CommandError::fixed(
                "ERR the ANY argument requires COUNT argument",
            ));
        }
        Ok(())
    }
}

/// Which options about the area were given.
#[derive(Clone, Copy, Debug, Default)]
struct Given {
    member: bool,
    place: bool,
    circle: bool,
    is_box: bool,
}

fn member_place(set: &SortedSet, member: &[u8]) -> Result<Place, CommandError> {
    let score = set.score(member);
    score.map(Place::of_score).ok_or(CommandError::fixed(
        "ERR could not decode requested zset member",
    ))
}

fn length(args: &mut Args<'_>, complaint: &'static str) -> Result<f64, CommandError> {
    number(args.bytes()?).ok_or_else(|| CommandError::fixed(complaint))
}
