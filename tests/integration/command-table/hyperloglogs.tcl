# HyperLogLogs. See tests/harness/rows.tcl.
rows hyperloglog {
    pfadd {
        given {{pfadd k a}} call {pfadd k b c} gives :1
        missing :1 events {{$ pfadd k}}
    }
    {pfadd, a new key} {
        call {pfadd k a} gives :1
        events {{n new k} {$ pfadd k}}
    }
    {pfadd, what is there} {
        given {{pfadd k a}} call {pfadd k a} gives :0
        missing :1 repeats {}
    }
    pfcount {
        given {{pfadd k a b}} call {pfcount k} gives :2
        missing :0 repeats {{pfcount k}}
    }
    {pfcount, several} {
        given {{pfadd k a b} {pfadd l b c}} call {pfcount k l} gives :3
        missing :0
    }
    pfmerge {
        given {{pfadd k a} {pfadd l b}} call {pfmerge d k l} gives +OK
        missing +OK events {{m keymiss d} {n new d} {$ pfadd d}}
    }
    pfdebug {
        given {{pfadd k a}} call {pfdebug encoding k} gives +sparse
        missing {-ERR The specified key does not exist} repeats {}
    }
    {pfdebug, todense} {
        given {{pfadd k a}} call {pfdebug todense k} gives :1
        missing {-ERR The specified key does not exist}
    }
    pfselftest {
        call pfselftest gives +OK
    }
}
