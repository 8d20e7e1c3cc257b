# Sorted sets. See tests/harness/rows.tcl.
rows sorted-set {
    bzmpop {
        given {{zadd k 1 a 2 b 3 c}} call {bzmpop 0.01 1 k min count 2} gives {* {$k} {* {* {$a} {$1}} {* {$b} {$2}}}}
        gives3 {* {$k} {* {* {$a} ,1} {* {$b} ,2}}}
        missing nil* missing3 _ events {{z zpopmin k}} repeats {{ZPOPMIN k 2}}
    }
    bzpopmax {
        given {{zadd k 1 a 2 b}} call {bzpopmax k 0.01} gives {* {$k} {$b} {$2}} gives3 {* {$k} {$b} ,2}
        missing nil* missing3 _ events {{z zpopmax k}} repeats {{ZPOPMAX k}}
    }
    bzpopmin {
        given {{zadd k 1 a}} call {bzpopmin k 0.01} gives {* {$k} {$a} {$1}} gives3 {* {$k} {$a} ,1}
        missing nil* missing3 _ events {{z zpopmin k} {g del k}} repeats {{ZPOPMIN k}}
    }
    zadd {
        given {{zadd k 1 a}} call {zadd k 2 a 3 b} gives :1
        missing :2 events {{z zadd k}}
    }
    {zadd, a new key} {
        call {zadd k 1 a} gives :1
        events {{n new k} {z zadd k}}
    }
    {zadd, incr} {
        given {{zadd k 1 a}} call {zadd k incr 2.5 a} gives {$3.5} gives3 ,3.5
        missing {$2.5} missing3 ,2.5 events {{z zincr k}}
    }
    {zadd, incr in vain} {
        given {{zadd k 1 a}} call {zadd k nx incr 2.5 a} gives nil$ gives3 _
        missing {$2.5} missing3 ,2.5 repeats {}
    }
    {zadd, changed} {
        given {{zadd k 1 a}} call {zadd k xx ch gt 2 a 3 b} gives :1
        missing :0 events {{z zadd k}}
    }
    zcard {
        given {{zadd k 1 a}} call {zcard k} gives :1
        missing :0
    }
    zcount {
        given {{zadd k 1 a 2 b}} call {zcount k (1 +inf} gives :1
        missing :0
    }
    zdiff {
        given {{zadd k 1 a 2 b} {zadd l 1 a}} call {zdiff 2 k l withscores} gives {* {$b} {$2}} gives3 {* {* {$b} ,2}}
        missing * takes {k {set zset} l {set zset}}
    }
    zdiffstore {
        given {{zadd k 1 a 2 b} {zadd l 1 a}} call {zdiffstore d 2 k l} gives :1
        missing :0 takes {d any k {set zset} l {set zset}} events {{n new d} {z zdiffstore d}}
    }
    zincrby {
        given {{zadd k 1 a}} call {zincrby k 1.5 a} gives {$2.5} gives3 ,2.5
        missing {$1.5} missing3 ,1.5 events {{z zincr k}}
    }
    zinter {
        given {{zadd k 1 a 2 b} {zadd l 1 a}} call {zinter 2 k l withscores} gives {* {$a} {$2}} gives3 {* {* {$a} ,2}}
        missing * takes {k {set zset} l {set zset}}
    }
    zintercard {
        given {{zadd k 1 a 2 b} {zadd l 1 a}} call {zintercard 2 k l limit 3} gives :1
        missing :0 takes {k {set zset} l {set zset}}
    }
    zinterstore {
        given {{zadd k 1 a 2 b} {zadd l 1 a}} call {zinterstore d 2 k l weights 2 3 aggregate max} gives :1
        missing :0 takes {d any k {set zset} l {set zset}} events {{n new d} {z zinterstore d}}
    }
    zlexcount {
        given {{zadd k 0 a 0 b}} call {zlexcount k - [b} gives :2
        missing :0
    }
    zmpop {
        given {{zadd k 1 a 2 b 3 c}} call {zmpop 1 k max count 2} gives {* {$k} {* {* {$c} {$3}} {* {$b} {$2}}}}
        gives3 {* {$k} {* {* {$c} ,3} {* {$b} ,2}}}
        missing nil* missing3 _ events {{z zpopmax k}} repeats {{ZPOPMAX k 2}}
    }
    zmscore {
        given {{zadd k 1 a}} call {zmscore k a b} gives {* {$1} nil$} gives3 {* ,1 _}
        missing {* nil$ nil$} missing3 {* _ _}
    }
    zpopmax {
        given {{zadd k 1 a 2 b}} call {zpopmax k} gives {* {$b} {$2}} gives3 {* {$b} ,2}
        missing * events {{z zpopmax k}}
    }
    {zpopmax, count} {
        given {{zadd k 1 a 2 b}} call {zpopmax k 5} gives {* {$b} {$2} {$a} {$1}} gives3 {* {* {$b} ,2} {* {$a} ,1}}
        missing * events {{z zpopmax k} {g del k}}
    }
    zpopmin {
        given {{zadd k 1 a 2 b}} call {zpopmin k 1} gives {* {$a} {$1}} gives3 {* {* {$a} ,1}}
        missing * events {{z zpopmin k}}
    }
    zrandmember {
        given {{zadd k 1 a}} call {zrandmember k} gives {$a}
        missing nil$ missing3 _
    }
    {zrandmember, count} {
        given {{zadd k 1 a}} call {zrandmember k -2 withscores} gives {* {$a} {$1} {$a} {$1}} gives3 \
            {* {* {$a} ,1} {* {$a} ,1}}
        missing *
    }
    zrange {
        given {{zadd k 1 a 2 b}} call {zrange k 0 -1 withscores} gives {* {$a} {$1} {$b} {$2}} gives3 \
            {* {* {$a} ,1} {* {$b} ,2}}
        missing *
    }
    zrangebylex {
        given {{zadd k 0 a 0 b}} call {zrangebylex k - + limit 0 1} gives {* {$a}}
        missing *
    }
    zrangebyscore {
        given {{zadd k 1 a 2 b}} call {zrangebyscore k -inf +inf withscores limit 0 1} gives {* {$a} {$1}} gives3 \
            {* {* {$a} ,1}}
        missing *
    }
    zrangestore {
        given {{zadd k 1 a 2 b}} call {zrangestore d k 0 0} gives :1
        missing :0 takes {d any} events {{n new d} {z zrangestore d}}
    }
    {zrangestore, nothing comes of it} {
        given {{set d x}} call {zrangestore d k 0 0} gives :0
        missing :0 takes {d any} events {{m keymiss k} {g del d}}
    }
    zrank {
        given {{zadd k 1 a 2 b}} call {zrank k b} gives :1
        missing nil$ missing3 _
    }
    {zrank, withscore} {
        given {{zadd k 1 a 2 b}} call {zrank k b withscore} gives {* :1 {$2}} gives3 {* :1 ,2}
        missing nil* missing3 _
    }
    zrem {
        given {{zadd k 1 a 2 b}} call {zrem k a c} gives :1
        missing :0 events {{z zrem k}}
    }
    zremrangebylex {
        given {{zadd k 0 a 0 b}} call {zremrangebylex k [a [a} gives :1
        missing :0 events {{z zremrangebylex k}} repeats {{zremrangebylex k {[a} {[a}}}
    }
    zremrangebyrank {
        given {{zadd k 1 a 2 b}} call {zremrangebyrank k 0 0} gives :1
        missing :0 events {{z zremrangebyrank k}}
    }
    zremrangebyscore {
        given {{zadd k 1 a 2 b}} call {zremrangebyscore k 1 2} gives :2
        missing :0 events {{z zremrangebyscore k} {g del k}}
    }
    zrevrange {
        given {{zadd k 1 a 2 b}} call {zrevrange k 0 -1 withscores} gives {* {$b} {$2} {$a} {$1}} gives3 \
            {* {* {$b} ,2} {* {$a} ,1}}
        missing *
    }
    zrevrangebylex {
        given {{zadd k 0 a 0 b}} call {zrevrangebylex k + - limit 0 1} gives {* {$b}}
        missing *
    }
    zrevrangebyscore {
        given {{zadd k 1 a 2 b}} call {zrevrangebyscore k +inf -inf withscores limit 0 1} gives {* {$b} {$2}} gives3 \
            {* {* {$b} ,2}}
        missing *
    }
    zrevrank {
        given {{zadd k 1 a 2 b}} call {zrevrank k a} gives :1
        missing nil$ missing3 _
    }
    {zrevrank, withscore} {
        given {{zadd k 1 a 2 b}} call {zrevrank k a withscore} gives {* :1 {$1}} gives3 {* :1 ,1}
        missing nil* missing3 _
    }
    zscan {
        given {{zadd k 1 a}} call {zscan k 0} gives {* {$0} {* {$a} {$1}}}
        missing {* {$0} *}
    }
    zscore {
        given {{zadd k 1.5 a}} call {zscore k a} gives {$1.5} gives3 ,1.5
        missing nil$ missing3 _
    }
    zunion {
        given {{zadd k 1 a} {zadd l 2 a}} call {zunion 2 k l withscores} gives {* {$a} {$3}} gives3 {* {* {$a} ,3}}
        missing * takes {k {set zset} l {set zset}}
    }
    zunionstore {
        given {{zadd k 1 a} {zadd l 2 b}} call {zunionstore d 2 k l} gives :2
        missing :0 takes {d any k {set zset} l {set zset}} events {{n new d} {z zunionstore d}}
    }
    {zunionstore, nothing comes of it} {
        given {{set d x}} call {zunionstore d 1 k} gives :0
        missing :0 takes {d any k {set zset}} events {{m keymiss k} {g del d}}
    }
}
