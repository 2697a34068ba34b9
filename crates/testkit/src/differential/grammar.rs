//! The grammar: how often each command occurs and how it may be written.
//!
//! A line is a weight and a form (form.rs). A command may have several lines. A command without a
//! line is in a schedule of several sessions ([`super::schedule`]), or in [`LEFT_OUT`] with a
//! reason. A test compares all three with the command table.

use super::draw::Draw;
use super::form::Form;

const STRINGS: &str = "
20 SET <key> <value>
30 SET <key> <value> (NX|XX|GET|KEEPTTL|EX <s>|PX <ms>|EXAT <unix-s>|PXAT <unix-ms>)*
20 GET <key>
5 GETSET <key> <value>
5 GETDEL <key>
8 GETEX <key> (PERSIST|EX <s>|PX <ms>|EXAT <unix-s>|PXAT <unix-ms>)*
5 SETNX <key> <value>
5 SETEX <key> <s> <value>
5 PSETEX <key> <ms> <value>
6 MSET (<key> <value>)+
5 MSETNX (<key> <value>)+
6 MGET <key>+
10 APPEND <key> <value>
5 STRLEN <key>
8 GETRANGE <key> <index> <index>
3 SUBSTR <key> <index> <index>
8 SETRANGE <key> <offset> <value>
10 INCR <key>
8 DECR <key>
10 INCRBY <key> <int>
8 DECRBY <key> <int>
12 INCRBYFLOAT <key> <float>
3 MSET (<key> <text>)+
8 LCS <key> <key> (LEN|IDX|MINMATCHLEN <index>|WITHMATCHLEN)*
2 SET <bigkey> <bigvalue>
2 (GET|GETDEL|STRLEN) <bigkey>
1 APPEND <bigkey> <value>
1 SETRANGE <bigkey> <offset> <value>
1 GETRANGE <bigkey> <index> <index>
1 COPY <bigkey> <bigkey> REPLACE
";

const BITMAPS: &str = "
12 SETBIT <key> <bitoffset> <bit>
8 GETBIT <key> <bitoffset>
10 BITCOUNT <key> [<index> <index> [BYTE|BIT]]
10 BITPOS <key> <bit> [<index> [<index> [BYTE|BIT]]]
10 BITOP (AND|OR|XOR|NOT) <key> <key>+
3 BITOP NOT <key> <key>
15 BITFIELD <key> (GET <fieldtype> <fieldoffset>|SET <fieldtype> <fieldoffset> <int>|INCRBY <fieldtype> <fieldoffset> <int>|OVERFLOW (WRAP|SAT|FAIL))*
5 BITFIELD_RO <key> (GET <fieldtype> <fieldoffset>)*
1 BITFIELD_RO <key> SET <fieldtype> <fieldoffset> <int>
1 BITCOUNT <bigkey> [<index> <index> [BYTE|BIT]]
";

const LISTS: &str = "
20 LPUSH <key> <value>+
20 RPUSH <key> <value>+
5 LPUSHX <key> <value>+
5 RPUSHX <key> <value>+
8 LPOP <key> [<index>]
8 RPOP <key> [<index>]
6 LLEN <key>
10 LRANGE <key> <index> <index>
8 LINDEX <key> <index>
8 LINSERT <key> (BEFORE|AFTER) <value> <value>
8 LSET <key> <index> <value>
8 LREM <key> (0|1|-1|2|-2|40|-40|9223372036854775807|-9223372036854775807|x|1.5) <value>
5 LTRIM <key> <index> <index>
2 LTRIM <key> 0 <index>
10 LPOS <key> <value> (RANK <index>|COUNT <index>|MAXLEN <index>)*
10 LMOVE <key> <key> (LEFT|RIGHT) (LEFT|RIGHT)
4 RPOPLPUSH <key> <key>
8 LMPOP (1 <key>|2 <key> <key>|3 <key> <key> <key>|<index> <key>) (LEFT|RIGHT) [COUNT <index>]
2 RPUSH <bigkey> <bigvalue>+
1 (LPOP|RPOP|LLEN) <bigkey>
1 LSET <bigkey> <index> <bigvalue>
1 LMOVE <bigkey> <bigkey> (LEFT|RIGHT) (LEFT|RIGHT)
1 LRANGE <bigkey> <index> <index>
1 LREM <bigkey> (0|1|-1) <bigvalue>
";

const HASHES: &str = "
25 HSET <key> (<member> <value>)+
4 HMSET <key> (<member> <value>)+
6 HSETNX <key> <member> <value>
10 HGET <key> <member>
6 HMGET <key> <member>+
6 HGETALL <key>
3 HKEYS <key>
3 HVALS <key>
5 HLEN <key>
4 HSTRLEN <key> <member>
4 HEXISTS <key> <member>
8 HDEL <key> <member>+
10 HINCRBY <key> <member> <int>
8 HINCRBYFLOAT <key> <member> <float>
4 HSCAN <key> 0 COUNT 1000000 [MATCH <glob>]
4 HSCAN <key> <cursor> (MATCH <glob>|COUNT <count>|NONSENSE <word>)*
4 HRANDFIELD <key> [(0|1|5|100|-1|-7|x) [WITHVALUES]]
1 HSET <bigkey> (<member> <bigvalue>)+
1 (HGETALL|HVALS) <bigkey>
";

const SETS: &str = "
20 SADD <key> <member>+
6 SADD <key> <index>+
8 SREM <key> <member>+
6 SMEMBERS <key>
6 SISMEMBER <key> <member>
4 SMISMEMBER <key> <member>+
5 SCARD <key>
4 SSCAN <key> 0 COUNT 1000000 [MATCH <glob>]
4 SSCAN <key> <cursor> (MATCH <glob>|COUNT <count>|NONSENSE <word>)*
4 SRANDMEMBER <key> [(0|1|5|100|-1|-7|x)]
1 SPOP <key> (0|1000000|-1|x)
8 SMOVE <key> <key> <member>
8 SINTER <key>+
6 SINTERSTORE <key> <key>+
8 SINTERCARD (1 <key>|2 <key> <key>|3 <key> <key> <key>|<index> <key>) [LIMIT <index>]
6 SUNION <key>+
6 SUNIONSTORE <key> <key>+
6 SDIFF <key>+
6 SDIFFSTORE <key> <key>+
";

const SORTED_SETS: &str = "
30 ZADD <zkey> (<score> <member>)+
12 ZADD <zkey> (NX|XX|GT|LT|CH|INCR)* (<score> <member>)+
6 ZADD <zkey> INCR <score> <member>
8 ZADD <lexkey> (0 <member>)+
8 ZINCRBY <zkey> <score> <member>
8 ZREM <zkey> <member>+
3 ZREM <lexkey> <member>+
8 ZSCORE <zkey> <member>
5 ZMSCORE <zkey> <member>+
4 ZCARD <zkey>
8 ZCOUNT <zkey> <scorebound> <scorebound>
6 ZLEXCOUNT <lexkey> <lexbound> <lexbound>
8 ZRANK <zkey> <member>
6 ZREVRANK <zkey> <member>
8 ZRANGE <zkey> <index> <index> (REV|WITHSCORES)*
8 ZRANGE <zkey> <scorebound> <scorebound> BYSCORE (REV|WITHSCORES|LIMIT <index> <index>)*
6 ZRANGE <lexkey> <lexbound> <lexbound> BYLEX (REV|LIMIT <index> <index>)*
2 ZRANGE <zkey> <index> <index> (REV|WITHSCORES|LIMIT <index> <index>|BYSCORE)*
4 ZREVRANGE <zkey> <index> <index> [WITHSCORES]
6 ZRANGEBYSCORE <zkey> <scorebound> <scorebound> (WITHSCORES|LIMIT <index> <index>)*
6 ZREVRANGEBYSCORE <zkey> <scorebound> <scorebound> (WITHSCORES|LIMIT <index> <index>)*
5 ZRANGEBYLEX <lexkey> <lexbound> <lexbound> (LIMIT <index> <index>)*
5 ZREVRANGEBYLEX <lexkey> <lexbound> <lexbound> (LIMIT <index> <index>)*
5 ZRANGESTORE <zkey> <zkey> <index> <index> [REV]
4 ZRANGESTORE <zkey> <zkey> <scorebound> <scorebound> BYSCORE (REV|LIMIT <index> <index>)*
2 ZRANGESTORE <lexkey> <lexkey> <lexbound> <lexbound> BYLEX (REV|LIMIT <index> <index>)*
4 ZREMRANGEBYRANK <zkey> <index> <index>
4 ZREMRANGEBYSCORE <zkey> <scorebound> <scorebound>
3 ZREMRANGEBYLEX <lexkey> <lexbound> <lexbound>
5 ZPOPMIN <zkey> [<index>]
5 ZPOPMAX <zkey> [<index>]
5 ZMPOP (1 <zkey>|2 <zkey> <zkey>|<index> <zkey>) (MIN|MAX) [COUNT <index>]
3 ZRANDMEMBER <zkey> [(0|1|5|100|-1|-7|x) [WITHSCORES]]
6 ZUNION (1 <zkey>|2 <zkey> <zkey>) (WITHSCORES|AGGREGATE (SUM|MIN|MAX))*
4 ZUNION 2 <zkey> <zkey> WEIGHTS <score> <score> (WITHSCORES|AGGREGATE (SUM|MIN|MAX))*
6 ZINTER (1 <zkey>|2 <zkey> <zkey>) (WITHSCORES|AGGREGATE (SUM|MIN|MAX))*
4 ZINTER 2 <zkey> <zkey> WEIGHTS <score> <score> (WITHSCORES|AGGREGATE (SUM|MIN|MAX))*
6 ZDIFF (1 <zkey>|2 <zkey> <zkey>|3 <zkey> <zkey> <zkey>) [WITHSCORES]
6 ZUNIONSTORE <zkey> 2 <zkey> <zkey> (WEIGHTS <score> <score>|AGGREGATE (SUM|MIN|MAX))*
6 ZINTERSTORE <zkey> 2 <zkey> <zkey> (WEIGHTS <score> <score>|AGGREGATE (SUM|MIN|MAX))*
4 ZDIFFSTORE <zkey> (1 <zkey>|2 <zkey> <zkey>)
4 ZINTERCARD (1 <zkey>|2 <zkey> <zkey>) [LIMIT <index>]
4 ZSCAN <zkey> 0 COUNT 1000000 [MATCH <glob>]
3 ZSCAN <zkey> <cursor> (MATCH <glob>|COUNT <count>|NONSENSE <word>)*
2 ZADD <bigkey> (<score> <bigvalue>)+
1 (ZPOPMIN|ZPOPMAX) <bigkey> <index>
1 ZRANGE <bigkey> <index> <index>
3 (COPY|RENAME) <zkey> <zkey>
3 OBJECT ENCODING <zkey>
2 DEL <zkey>
";

const GEO: &str = "
30 GEOADD <geokey> (<longitude> <latitude> <member>)+
6 GEOADD <geokey> (NX|XX|CH)* (<longitude> <latitude> <member>)+
6 GEOPOS <geokey> <member>*
8 GEODIST <geokey> <member> <member> [(m|km|ft|mi|KM)]
6 GEOHASH <geokey> <member>*
12 GEOSEARCH <geokey> (FROMMEMBER <member>|FROMLONLAT <longitude> <latitude>) (BYRADIUS <length> (m|km|ft|mi)|BYBOX <length> <length> (m|km|ft|mi)) (ASC|DESC|COUNT <index>|ANY|WITHCOORD|WITHDIST|WITHHASH)*
10 GEOSEARCH <geokey> FROMLONLAT <longitude> <latitude> (BYRADIUS <length> km|BYBOX <length> <length> km)
8 GEOSEARCHSTORE <geokey> <geokey> (FROMMEMBER <member>|FROMLONLAT <longitude> <latitude>) (BYRADIUS <length> (m|km|ft|mi)|BYBOX <length> <length> (m|km|ft|mi)) (ASC|DESC|COUNT <index>|ANY|STOREDIST)*
8 GEORADIUS <geokey> <longitude> <latitude> <length> (m|km|ft|mi) (ASC|DESC|COUNT <index>|ANY|WITHCOORD|WITHDIST|WITHHASH)*
3 GEORADIUS <geokey> <longitude> <latitude> <length> (m|km|ft|mi) (ASC|DESC|COUNT <index>|ANY|STORE <geokey>|STOREDIST <geokey>)*
5 GEORADIUS_RO <geokey> <longitude> <latitude> <length> (m|km|ft|mi) (ASC|DESC|COUNT <index>|ANY|WITHCOORD|WITHDIST|WITHHASH)*
6 GEORADIUSBYMEMBER <geokey> <member> <length> (m|km|ft|mi) (ASC|DESC|COUNT <index>|ANY|WITHCOORD|WITHDIST|WITHHASH)*
3 GEORADIUSBYMEMBER <geokey> <member> <length> (m|km|ft|mi) (ASC|DESC|COUNT <index>|ANY|STORE <geokey>|STOREDIST <geokey>)*
5 GEORADIUSBYMEMBER_RO <geokey> <member> <length> (m|km|ft|mi) (ASC|DESC|COUNT <index>|ANY|WITHCOORD|WITHDIST|WITHHASH)*
2 ZREM <geokey> <member>+
1 DEL <geokey>
";

const HYPER_LOG_LOG: &str = "
10 PFADD <sketch> <member>*
4 PFADD <sketch> <value>+
6 PFCOUNT <sketch>
3 PFCOUNT <sketch>+
5 PFMERGE <sketch> <sketch>*
2 PFADD <key> <member>
2 PFCOUNT <key>+
1 PFMERGE <key> <key>+
3 GET <sketch>
1 PFDEBUG (ENCODING|ENCODING|ENCODING|DECODE|DECODE|DECODE|TODENSE|TODENSE|NONSENSE|GETREG) <sketch>
2 COPY <sketch> <broken> REPLACE
2 SETRANGE <broken> <offset> <value>
2 PFCOUNT <broken>
1 PFMERGE <sketch> <broken>
1 PFMERGE <broken> <sketch>
";

const GENERIC: &str = "
10 DEL <key>+
6 UNLINK <key>+
6 EXISTS <key>+
4 TYPE <key>
4 TOUCH <key>+
8 RENAME <key> <key>
8 RENAMENX <key> <key>
10 COPY <key> <key> (DB <db>|REPLACE)*
6 MOVE <key> <db>
8 EXPIRE <key> <s> [NX|XX|GT|LT]
6 PEXPIRE <key> <ms> [NX|XX|GT|LT]
8 EXPIREAT <key> <unix-s> [NX|XX|GT|LT]
6 PEXPIREAT <key> <unix-ms> [NX|XX|GT|LT]
2 EXPIRE <key> <s> (NX|XX|GT|LT)*
6 TTL <key>
6 PTTL <key>
5 EXPIRETIME <key>
5 PEXPIRETIME <key>
6 PERSIST <key>
4 SCAN 0 COUNT 1000000 (MATCH <glob>|TYPE string|TYPE list|TYPE zset|TYPE stream)*
4 SCAN <cursor> (MATCH <glob>|COUNT <count>|TYPE string)*
4 KEYS <glob>
2 RANDOMKEY
4 DBSIZE
1 FLUSHDB [ASYNC|SYNC]
1 FLUSHALL [ASYNC|SYNC]
3 SWAPDB <db> <db>
8 SELECT <db>
10 OBJECT ENCODING <key>
2 OBJECT REFCOUNT <key>
2 OBJECT IDLETIME <key>
1 OBJECT FREQ <key>
1 OBJECT (HELP|NONSENSE)
8 DUMP <key>
1 DUMP <bigkey>
6 RESTORE <key> (0|0|0|5000000|700000000000|-1|x) <payload> (REPLACE|ABSTTL|IDLETIME <index>|FREQ <index>)*
2 RESTORE <key> <unix-ms> <payload> ABSTTL [REPLACE]
1 RESTORE-ASKING <key> 0 <payload> [REPLACE]
";

const SORTING: &str = "
20 RPUSH <sortlist> <element>+
14 SADD <sortset> <element>+
14 ZADD <sortzset> (<sortnumber> <element>)+
14 MSET (<weight> <sortnumber>)+
10 HSET <weights> ((f|g) <sortnumber>)+
2 HSET <weights> f <word>
2 SET <weight> <word>
2 DEL <weight>
2 DEL (<sortlist>|<sortset>|<sortzset>)
2 (ZREM|SREM|LREM) (<sortlist>|<sortset>|<sortzset>) <element>
12 SORT (<sortlist>|<sortset>|<sortzset>) (ASC|DESC|ALPHA|LIMIT <index> <index>|GET <get>)*
6 SORT (<sortlist>|<sortset>|<sortzset>) (ASC|DESC|ALPHA|LIMIT <index> <index>|GET <get>|STORE <sortlist>)*
12 SORT (<sortlist>|<sortset>|<sortzset>) BY <by> (ASC|DESC|LIMIT <index> <index>|GET <get>|GET <get>)*
6 SORT (<sortlist>|<sortset>|<sortzset>) BY <by> (ASC|DESC|LIMIT <index> <index>|GET <get>|STORE <sortlist>)*
6 SORT (<sortlist>|<sortset>|<sortzset>) BY <by> ALPHA (ASC|DESC|LIMIT <index> <index>|GET <get>)*
8 SORT (<sortlist>|<sortzset>) BY (nosort|#|) (ASC|DESC|ALPHA|LIMIT <index> <index>|GET <get>)*
4 SORT (<sortlist>|<sortzset>) BY (nosort|#|) (ASC|DESC|ALPHA|LIMIT <index> <index>|GET <get>|STORE <sortlist>)*
3 SORT <sortset> BY nosort (ASC|DESC|GET <get>)*
3 SORT <sortset> BY nosort STORE <sortlist> (ASC|DESC|LIMIT <index> <index>|GET <get>)*
6 SORT_RO (<sortlist>|<sortset>|<sortzset>) (BY <by>|ASC|DESC|LIMIT <index> <index>|GET <get>)*
1 SORT_RO <sortlist> STORE <sortlist>
1 (SORT|SORT_RO) (<sketch>|<weights>)
1 LRANGE <sortlist> 0 -1
1 COMMAND GETKEYSANDFLAGS SORT <sortlist> (BY <by>|ASC|LIMIT <index> <index>|GET <get>|STORE <sortlist>|GET STORE)*
1 COMMAND GETKEYS SORT_RO <sortlist> (BY <by>|GET <get>|STORE <sortlist>)*
";

const STREAMS: &str = "
30 XADD <stream> <newid> (<member> <index>)+
8 XADD <stream> (NOMKSTREAM|MAXLEN (=|~|) <index>|MINID (=|~) <id>|MAXLEN ~ <index> LIMIT <index>|MAXLEN <index>)* <newid> (<member> <index>)+
2 XADD <bigkey> <newid> (<member> <bigvalue>)+
4 XLEN <stream>
8 XRANGE <stream> <idbound> <idbound> [COUNT <index>]
8 XREVRANGE <stream> <idbound> <idbound> [COUNT <index>]
1 (XRANGE|XREVRANGE) <bigkey> <idbound> <idbound>
8 XREAD [COUNT <index>] STREAMS (<stream> <id>|<stream> <stream> <id> <id>|<stream> $)
6 XDEL <stream> <id>+
6 XTRIM <stream> (MAXLEN|MAXLEN =|MAXLEN ~) <index> [LIMIT <index>]
4 XTRIM <stream> (MINID|MINID =|MINID ~) <id> [LIMIT <index>]
10 XGROUP CREATE <stream> <group> (<id>|0|$) (MKSTREAM|ENTRIESREAD (-2|-1|0|1|2|7|100|x))*
4 XGROUP SETID <stream> <group> (<idbound>|0|$) [ENTRIESREAD (-2|-1|0|1|2|7|100|x)]
1 XGROUP DESTROY <stream> <group>
4 XGROUP CREATECONSUMER <stream> <group> <consumer>
2 XGROUP DELCONSUMER <stream> <group> <consumer>
1 (XGROUP|XINFO) (HELP|NONSENSE)
16 XREADGROUP GROUP <group> <consumer> [COUNT <index>] [NOACK] STREAMS (<stream>|<stream>|<stream>) >
6 XREADGROUP GROUP <group> <consumer> [COUNT <index>] STREAMS (<stream> <id>|<stream> <stream> <id> >)
8 XACK <stream> <group> <id>+
6 XPENDING <stream> <group>
6 XPENDING <stream> <group> [IDLE <idle>] <idbound> <idbound> <index> [<consumer>]
10 XCLAIM <stream> <group> <consumer> <idle> <id>+ (FORCE|JUSTID|IDLE 80000000|TIME 1000|RETRYCOUNT <index>|LASTID <id>)*
8 XAUTOCLAIM <stream> <group> <consumer> <idle> <idbound> (COUNT <index>|JUSTID)*
5 XINFO STREAM <stream>
3 XINFO STREAM <stream> FULL [COUNT <index>]
6 XINFO GROUPS <stream>
4 XINFO CONSUMERS <stream> <group>
2 (COPY|RENAME) <stream> <stream>
2 OBJECT ENCODING <stream>
2 DEL <stream>
";

const SCRIPTS: &str = "
12 EVAL <script> 1 <key> <value>
6 EVAL <script> 1 <key> <member>
2 EVAL <script> (0|2|-1|x|<index>) <key> <key>
4 EVAL_RO <script> 1 <key> <member>
1 EVALSHA <word> 0
1 EVALSHA_RO <word> 0
1 SCRIPT EXISTS <word>+
1 FCALL <word> (0|1|x) <key>
1 FCALL_RO <word> (0|1|x) <key>
";

const CONNECTION: &str = "
3 PING [<word>]
2 ECHO <word>
1 HELLO (4|x)
1 HELLO (2|3)
1 AUTH <word> [<word>]
1 RESET
2 CLIENT SETNAME <word>
2 CLIENT GETNAME
1 CLIENT ID
1 CLIENT (INFO|LIST)
1 CLIENT LIST (ID <int>|TYPE (replica|master|pubsub|nonsense))
1 CLIENT NO-EVICT (ON|OFF|MAYBE)
1 CLIENT KILL (127.0.0.1:1|ID 987654321|ADDR 127.0.0.1:1|TYPE nonsense|SKIPME maybe|ID x)
1 CLIENT REPLY (ON|NONSENSE)
1 CLIENT UNPAUSE
1 CLIENT NONSENSE <word>
1 READONLY
1 READWRITE
1 ASKING
";

const SERVER: &str = "
1 COMMAND GETKEYS (SET <key> <value>|MSET (<key> <value>)+|GET <key>|PING|BITOP AND <key> <key>+|NONSENSE <key>)
1 COMMAND GETKEYSANDFLAGS (SET <key> <value> [GET]|MSET (<key> <value>)+|DEL <key>+|COPY <key> <key>|LCS <key> <key>)
1 COMMAND INFO (nonsense|<word>)
1 COMMAND LIST FILTERBY (MODULE <word>|PATTERN xyz*|ACLCAT nonsense|NONSENSE x)
1 COMMAND NONSENSE
1 CONFIG GET (nonsense|hash-max-nonsense|databases|proto-max-bulk-len|maxclients|timeout)
1 CONFIG SET (nonsense <word>|timeout <word>|timeout -1|maxmemory x|maxmemory-policy x|databases 5|timeout)
1 CONFIG RESETSTAT
1 CONFIG NONSENSE
1 TIME
1 MEMORY USAGE <key> [SAMPLES <count>]
1 MEMORY NONSENSE
1 ROLE
1 LASTSAVE
1 CLUSTER (INFO|NODES|SLOTS|MYID)
1 MODULE LIST
2 NONSENSE <word> <value>
1 (FOO|GETX|SE|INCRBYFLOATS) <value>+
";

const OF_MEMCACHED: &str =
    "our own, for the memcached port; held by transcripts and the replay of effects";
const GARNETS: &str = "a command of Garnet; held by transcripts and the replay of effects";
const KEYDBS: &str = "a command of KeyDB; held by transcripts and the replay of effects";
const SAVES: &str =
    "what it answers depends on what is being saved; held by transcripts and process tests";
const NEWER: &str = "newer than the oracle; held by transcripts";

/// Commands and subcommands that random sequences do not contain, and why.
pub const LEFT_OUT: &[(&str, &str)] = &[
    ("MIGRATE", "needs another server; held by process tests"),
    ("TIER", "our own; held by transcripts and process tests"),
    ("FAILOVER", "needs a replica; held by process tests"),
    (
        "REPLICATION",
        "our own, and needs a replica; held by process tests",
    ),
    ("REPLCONF", "what replicas say; held by process tests"),
    (
        "PSYNC",
        "makes the connection a link; held by process tests",
    ),
    ("SYNC", "makes the connection a link; held by process tests"),
    (
        "ACL",
        "rules are asked for by ACL DRYRUN, a million pairs; held by transcripts",
    ),
    (
        "FUNCTION",
        "its libraries would outlive a sequence; held by transcripts",
    ),
    ("DELIFEQ", NEWER),
    ("MSETEX", NEWER),
    ("SUNIONCARD", NEWER),
    ("DELIFGREATER", GARNETS),
    ("EXECIFGREATER", GARNETS),
    ("EXECIFMATCH", GARNETS),
    ("EXECIFNOTMATCH", GARNETS),
    ("EXECWITHETAG", GARNETS),
    ("GETETAG", GARNETS),
    ("GETIFNOTMATCH", GARNETS),
    (
        "SETETAG",
        "our own; held by transcripts and the replay of effects",
    ),
    ("MCDEL", OF_MEMCACHED),
    ("MCFLUSH", OF_MEMCACHED),
    ("MCGAT", OF_MEMCACHED),
    ("MCGET", OF_MEMCACHED),
    ("MCINCR", OF_MEMCACHED),
    ("MCSET", OF_MEMCACHED),
    ("MCWIN", OF_MEMCACHED),
    ("GETWITHETAG", GARNETS),
    ("SETIFGREATER", GARNETS),
    ("SETIFMATCH", GARNETS),
    ("SETWITHETAG", GARNETS),
    ("EXPIREMEMBER", KEYDBS),
    ("EXPIREMEMBERAT", KEYDBS),
    ("PEXPIREMEMBERAT", KEYDBS),
    ("HEXPIRE", NEWER),
    ("HPEXPIRE", NEWER),
    ("HEXPIREAT", NEWER),
    ("HPEXPIREAT", NEWER),
    ("HTTL", NEWER),
    ("HPTTL", NEWER),
    ("HEXPIRETIME", NEWER),
    ("HPEXPIRETIME", NEWER),
    ("HPERSIST", NEWER),
    ("HGETEX", NEWER),
    ("HSETEX", NEWER),
    ("HGETDEL", NEWER),
    (
        "PFSELFTEST",
        "Redis takes seconds for it; held by transcripts",
    ),
    (
        "XSETID",
        "since Redis 7.2 it looks at the highest id that was deleted; held by transcripts",
    ),
    ("SAVE", SAVES),
    ("BGSAVE", SAVES),
    ("BGREWRITEAOF", SAVES),
    ("QUIT", "ends the connection; held by transcripts"),
    ("SHUTDOWN", "ends the server; held by process tests"),
    (
        "DEBUG",
        "refused by Redis unless configured; held by transcripts",
    ),
    ("INFO", "figures of the machine; held by transcripts"),
    (
        "CLIENT PAUSE",
        "a spoilt one would stop a server for ages; held by transcripts",
    ),
    (
        "HELLO with options",
        "since Redis 7.2 nothing of one that fails takes effect; held by transcripts",
    ),
    ("LOLWUT", "shows the version; held by transcripts"),
    (
        "REPLICAOF",
        "a spoilt one would make a replica; held by transcripts",
    ),
    ("SLAVEOF", "an old name of REPLICAOF"),
    ("WAITAOF", NEWER),
    ("COMMANDLOG", NEWER),
    ("HOTKEYS", NEWER),
    ("SLOWLOG", "times of commands; held by transcripts"),
    ("LATENCY", "times of commands; held by transcripts"),
    (
        "MONITOR",
        "shows addresses and times; held by tests of the server",
    ),
];

/// Families about keys, except sorting.
pub(super) const WRITING: &[&str] = &[
    STRINGS,
    BITMAPS,
    LISTS,
    HASHES,
    SETS,
    SORTED_SETS,
    GEO,
    HYPER_LOG_LOG,
    GENERIC,
    STREAMS,
];

const FAMILIES: &[&str] = &[
    STRINGS,
    BITMAPS,
    LISTS,
    HASHES,
    SETS,
    SORTED_SETS,
    GEO,
    HYPER_LOG_LOG,
    GENERIC,
    SORTING,
    STREAMS,
    SCRIPTS,
    CONNECTION,
    SERVER,
];

/// All commands with their weights.
pub(super) struct Grammar {
    rows: Vec<Row>,
}

/// A line of the tables above.
#[derive(Clone)]
struct Row {
    weight: u64,
    form: Form,
    /// Index of its family in `FAMILIES`.
    family: usize,
}

/// Factor by which the weights of the family in focus are raised.
const FOCUS: u64 = 24;

impl Grammar {
    /// Returns the whole grammar.
    ///
    /// # Panics
    /// If a line of the tables above, which are constants, is malformed.
    pub(super) fn new() -> Self {
        let families = FAMILIES.iter().enumerate();
        let lines = families.flat_map(|(family, table)| {
            let lines = table.lines().filter(|line| !line.is_empty());
            lines.map(move |line| parse_row(line, family))
        });
        Self {
            rows: lines.collect(),
        }
    }

    /// Returns a random part of the grammar. In a sequence of few commands with high weights, each
    /// command more often meets the states that the others leave behind. Two sequences in three
    /// focus on one family, so that its keys hold much data; commands of the other families come in
    /// between.
    pub(super) fn part(&self, draw: &mut Draw) -> Self {
        let focus = (!draw.once_in(3)).then(|| draw.index(FAMILIES.len()));
        let sorts = focus.is_some_and(|family| FAMILIES[family] == SORTING);
        let mut rows = Vec::new();
        for row in &self.rows {
            // Sorting has sequences of its own. In Redis 7.0 an overflow in any other command makes
            // the next sort fail, because that sort takes the earlier value of `errno` for its own.
            if sorts != (FAMILIES[row.family] == SORTING) {
                continue;
            }
            let times = match draw.below(4) {
                0 => continue,
                1 => 4,
                _ => 1,
            };
            let focused = if focus == Some(row.family) { FOCUS } else { 1 };
            rows.push(Row {
                weight: row.weight * times * focused,
                ..row.clone()
            });
        }
        Self { rows }
    }

    /// Returns a random request.
    pub(super) fn request(&self, draw: &mut Draw) -> Vec<Vec<u8>> {
        let total = self.rows.iter().map(|row| row.weight).sum();
        let mut at = draw.below(total);
        for row in &self.rows {
            if at < row.weight {
                return row.form.request(draw);
            }
            at -= row.weight;
        }
        vec![b"PING".to_vec()]
    }

    /// Returns the names of all commands in the grammar.
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.rows.iter().filter_map(|row| row.form.name())
    }
}

/// Returns the names of all commands that random sequences contain.
#[must_use]
pub fn commands_in_grammar() -> Vec<&'static str> {
    let mut names: Vec<&'static str> = Grammar::new().names().collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn parse_row(line: &'static str, family: usize) -> Row {
    let row = line.split_once(' ').and_then(|(weight, form)| {
        let weight = weight.parse().ok()?;
        Some((weight, Form::parse(form)))
    });
    match row {
        Some((weight, Ok(form))) => Row {
            weight,
            form,
            family,
        },
        Some((_, Err(error))) => panic!("{error}"),
        None => panic!("a line is a weight and a form: {line}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::schedule::commands_in_schedules;
    use super::*;

    #[test]
    fn every_command_of_the_server_is_in_the_grammar_or_left_out_with_a_reason() {
        let in_grammar = commands_in_grammar();
        let in_schedules = commands_in_schedules();
        let missing: Vec<&str> = crate::table()
            .commands()
            .iter()
            .map(|spec| spec.name)
            .filter(|name| !in_grammar.contains(name) && !in_schedules.contains(name))
            .filter(|name| !LEFT_OUT.iter().any(|(left_out, _)| left_out == name))
            .collect();
        assert!(missing.is_empty(), "no grammar for {missing:?}");
    }
}
