# Sets. See tests/harness/rows.tcl.
rows set {
    sadd {
        given {{sadd k a}} call {sadd k a b c} gives :2
        missing :3 events {{s sadd k}}
    }
    {sadd, what is there} {
        given {{sadd k a}} call {sadd k a} gives :0
        missing :1 repeats {}
    }
    scard {
        given {{sadd k a b}} call {scard k} gives :2
        missing :0
    }
    sdiff {
        given {{sadd k a b} {sadd l b}} call {sdiff k l} gives {* {$a}} gives3 {~ {$a}}
        missing * missing3 ~
    }
    sdiffstore {
        given {{sadd k a b} {sadd l b}} call {sdiffstore d k l} gives :1
        missing :0 takes {d any} events {{n new d} {s sdiffstore d}}
    }
    {sdiffstore, nothing comes of it} {
        given {{sadd k a} {sadd l a} {set d x}} call {sdiffstore d k l} gives :0
        missing :0 takes {d any} events {{g del d}}
    }
    sinter {
        given {{sadd k a b} {sadd l b}} call {sinter k l} gives {* {$b}} gives3 {~ {$b}}
        missing * missing3 ~
    }
    sintercard {
        given {{sadd k a b} {sadd l b}} call {sintercard 2 k l limit 5} gives :1
        missing :0
    }
    sinterstore {
        given {{sadd k a b} {sadd l b}} call {sinterstore d k l} gives :1
        missing :0 takes {d any} events {{n new d} {s sinterstore d}}
    }
    sismember {
        given {{sadd k a}} call {sismember k a} gives :1
        missing :0
    }
    smembers {
        given {{sadd k a}} call {smembers k} gives {* {$a}} gives3 {~ {$a}}
        missing * missing3 ~
    }
    smismember {
        given {{sadd k a}} call {smismember k a b} gives {* :1 :0}
        missing {* :0 :0}
    }
    smove {
        given {{sadd k a b} {sadd l c}} call {smove k l a} gives :1
        missing :0 events {{s srem k} {s sadd l}}
    }
    {smove, the last to a new key} {
        given {{sadd k a}} call {smove k l a} gives :1
        missing :0 events {{s srem k} {g del k} {n new l} {s sadd l}}
    }
    spop {
        given {{sadd k a}} call {spop k} gives {$a}
        missing nil$ missing3 _ events {{s spop k} {g del k}} repeats {{SREM k a}}
    }
    {spop, some} {
        given {{sadd k a b}} call {spop k 1} like {[*] {$[ab]}} like3 {~ {$[ab]}}
        missing * missing3 ~ events {{s spop k}} repeats {{SREM k [ab]}}
    }
    {spop, all} {
        given {{sadd k a b}} call {spop k 5} like {[*] {$[ab]} {$[ab]}} like3 {~ {$[ab]} {$[ab]}}
        missing * missing3 ~ events {{s spop k} {g del k}} repeats {{UNLINK k}}
    }
    srandmember {
        given {{sadd k a}} call {srandmember k} gives {$a}
        missing nil$ missing3 _
    }
    {srandmember, count} {
        given {{sadd k a}} call {srandmember k -2} gives {* {$a} {$a}}
        missing *
    }
    srem {
        given {{sadd k a b}} call {srem k a c} gives :1
        missing :0 events {{s srem k}}
    }
    sscan {
        given {{sadd k a}} call {sscan k 0} gives {* {$0} {* {$a}}}
        missing {* {$0} *}
    }
    sunion {
        given {{sadd k a} {sadd l a}} call {sunion k l} gives {* {$a}} gives3 {~ {$a}}
        missing * missing3 ~
    }
    sunionstore {
        given {{sadd k a} {sadd l b}} call {sunionstore d k l} gives :2
        missing :0 takes {d any} events {{n new d} {s sunionstore d}}
    }
    {sunionstore, over a string} {
        given {{sadd k a} {set d x}} call {sunionstore d k} gives :1
        missing :0 takes {d any} events {{s sunionstore d}}
    }
}
