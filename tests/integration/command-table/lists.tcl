# Lists. See tests/harness/rows.tcl.
rows list {
    blmove {
        given {{rpush k a b}} call {blmove k l left right 0.01} gives {$a}
        missing nil* missing3 _ events {{n new l} {l rpush l} {l lpop k}} repeats {{LMOVE k l left right}}
    }
    blmpop {
        given {{rpush k a b c}} call {blmpop 0.01 1 k left count 2} gives {* {$k} {* {$a} {$b}}}
        missing nil* missing3 _ events {{l lpop k}} repeats {{LPOP k 2}}
    }
    blpop {
        given {{rpush k a b}} call {blpop k 0.01} gives {* {$k} {$a}}
        missing nil* missing3 _ events {{l lpop k}} repeats {{LPOP k}}
    }
    brpop {
        given {{rpush k a}} call {brpop k 0.01} gives {* {$k} {$a}}
        missing nil* missing3 _ events {{l rpop k} {g del k}} repeats {{RPOP k}}
    }
    brpoplpush {
        given {{rpush k a b}} call {brpoplpush k l 0.01} gives {$b}
        missing nil* missing3 _ events {{n new l} {l lpush l} {l rpop k}} repeats {{RPOPLPUSH k l}}
    }
    lindex {
        given {{rpush k a b}} call {lindex k 1} gives {$b}
        missing nil$ missing3 _
    }
    linsert {
        given {{rpush k a b}} call {linsert k before b x} gives :3
        missing :0 events {{l linsert k}}
    }
    {linsert, no pivot} {
        given {{rpush k a b}} call {linsert k after c x} gives :-1
        missing :0 repeats {}
    }
    llen {
        given {{rpush k a b}} call {llen k} gives :2
        missing :0
    }
    lmove {
        given {{rpush k a b}} call {lmove k l left right} gives {$a}
        missing nil$ missing3 _ events {{n new l} {l rpush l} {l lpop k}}
    }
    {lmove, the last} {
        given {{rpush k a} {rpush l x}} call {lmove k l right left} gives {$a}
        missing nil$ missing3 _ events {{l lpush l} {l rpop k} {g del k}}
    }
    lmpop {
        given {{rpush k a b c}} call {lmpop 1 k right count 2} gives {* {$k} {* {$c} {$b}}}
        missing nil* missing3 _ events {{l rpop k}} repeats {{RPOP k 2}}
    }
    lpop {
        given {{rpush k a b}} call {lpop k} gives {$a}
        missing nil$ missing3 _ events {{l lpop k}}
    }
    {lpop, count} {
        given {{rpush k a b}} call {lpop k 5} gives {* {$a} {$b}}
        missing nil* missing3 _ events {{l lpop k} {g del k}}
    }
    lpos {
        given {{rpush k a b a}} call {lpos k a rank -1} gives :2
        missing nil$ missing3 _
    }
    {lpos, count} {
        given {{rpush k a b a}} call {lpos k a count 0} gives {* :0 :2}
        missing *
    }
    lpush {
        given {{rpush k a}} call {lpush k b c} gives :3
        missing :2 events {{l lpush k}}
    }
    {lpush, a new key} {
        call {lpush k b c} gives :2
        events {{n new k} {l lpush k}}
    }
    lpushx {
        given {{rpush k a}} call {lpushx k b} gives :2
        missing :0 events {{l lpush k}}
    }
    lrange {
        given {{rpush k a b c}} call {lrange k 0 -1} gives {* {$a} {$b} {$c}}
        missing *
    }
    lrem {
        given {{rpush k a b a}} call {lrem k 0 a} gives :2
        missing :0 events {{l lrem k}}
    }
    lset {
        given {{rpush k a b}} call {lset k 0 c} gives +OK
        missing {-ERR no such key} events {{l lset k}}
    }
    ltrim {
        given {{rpush k a b c}} call {ltrim k 1 1} gives +OK
        missing +OK events {{l ltrim k}}
    }
    {ltrim, to nothing} {
        given {{rpush k a b c}} call {ltrim k 5 6} gives +OK
        missing +OK events {{l ltrim k} {g del k}}
    }
    rpop {
        given {{rpush k a b}} call {rpop k} gives {$b}
        missing nil$ missing3 _ events {{l rpop k}}
    }
    rpoplpush {
        given {{rpush k a b}} call {rpoplpush k l} gives {$b}
        missing nil$ missing3 _ events {{n new l} {l lpush l} {l rpop k}}
    }
    rpush {
        given {{rpush k a}} call {rpush k b} gives :2
        missing :1 events {{l rpush k}}
    }
    rpushx {
        given {{rpush k a}} call {rpushx k b} gives :2
        missing :0 events {{l rpush k}}
    }
}
