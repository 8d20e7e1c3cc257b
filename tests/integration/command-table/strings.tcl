# Strings. See tests/harness/rows.tcl.
rows string {
    append {
        given {{set k a}} call {append k b} gives :2
        missing :1 events {{$ append k}}
    }
    decr {
        given {{set k 5}} call {decr k} gives :4
        missing :-1 events {{$ incrby k}}
    }
    decrby {
        given {{set k 5}} call {decrby k 3} gives :2
        missing :-3 events {{$ incrby k}}
    }
    get {
        given {{set k v}} call {get k} gives {$v}
        missing nil$ missing3 _
    }
    getdel {
        given {{set k v}} call {getdel k} gives {$v}
        missing nil$ missing3 _ events {{g del k}} repeats {{DEL k}}
    }
    getex {
        given {{set k v}} call {getex k} gives {$v}
        missing nil$ missing3 _ repeats {}
    }
    {getex, with a relative time} {
        given {{set k v}} call {getex k ex 100} gives {$v}
        missing nil$ missing3 _ events {{g expire k}} repeats {{PEXPIREAT k *}}
    }
    {getex, with an absolute time} {
        given {{set k v}} call {getex k pxat 33177117420000} gives {$v}
        missing nil$ missing3 _ events {{g expire k}} repeats {{PEXPIREAT k 33177117420000}}
    }
    {getex, in the past} {
        given {{set k v}} call {getex k exat 1} gives {$v}
        missing nil$ missing3 _ events {{x expired k}} repeats {{UNLINK k}}
    }
    {getex, persist} {
        given {{set k v ex 100}} call {getex k persist} gives {$v}
        missing nil$ missing3 _ events {{g persist k}} repeats {{PERSIST k}}
    }
    getrange {
        given {{set k abc}} call {getrange k 0 1} gives {$ab}
        missing {$}
    }
    getset {
        given {{set k v}} call {getset k w} gives {$v}
        missing nil$ missing3 _ events {{$ set k}} repeats {{SET k w}}
    }
    incr {
        given {{set k 5}} call {incr k} gives :6
        missing :1 events {{$ incrby k}}
    }
    incrby {
        given {{set k 5}} call {incrby k 3} gives :8
        missing :3 events {{$ incrby k}}
    }
    incrbyfloat {
        given {{set k 1.5}} call {incrbyfloat k 0.25} gives {$1.75}
        missing {$0.25} events {{$ incrbyfloat k}} repeats {{SET k 1.75 KEEPTTL}}
    }
    lcs {
        given {{set k ohmytext} {set l mynewtext}} call {lcs k l} gives {$mytext}
        missing {$} refuses {-ERR The specified keys must contain string values}
    }
    {lcs, idx} {
        given {{set k ohmytext} {set l mynewtext}} call {lcs k l idx minmatchlen 3 withmatchlen}
        gives {* {$matches} {* {* {* :4 :7} {* :5 :8} :4}} {$len} :6} gives3 \
            {% {$matches} {* {* {* :4 :7} {* :5 :8} :4}} {$len} :6}
        missing {* {$matches} * {$len} :0} missing3 {% {$matches} * {$len} :0} refuses \
            {-ERR The specified keys must contain string values}
    }
    mget {
        given {{set k v}} call {mget k l} gives {* {$v} nil$} gives3 {* {$v} _}
        missing {* nil$ nil$} missing3 {* _ _} takes {k any l any} events {{m keymiss l}}
    }
    mset {
        given {{set k v}} call {mset k 1 l 2} gives +OK
        missing +OK takes {k any l any} events {{$ set k} {n new l} {$ set l}}
    }
    msetnx {
        call {msetnx k 1 l 2} gives :1
        takes {k any l any} events {{n new k} {$ set k} {n new l} {$ set l}}
    }
    {msetnx, with one that is there} {
        given {{set k v}} call {msetnx k 1 l 2} gives :0
        missing :1 takes {k any l any} repeats {}
    }
    psetex {
        call {psetex k 100000 v} gives +OK
        takes {k any} events {{n new k} {$ set k} {g expire k}} repeats {{SET k v PXAT *}}
    }
    set {
        call {set k v} gives +OK
        takes {k any} events {{n new k} {$ set k}}
    }
    {set, a key that is there} {
        given {{set k v}} call {set k w} gives +OK
        missing +OK takes {k any} events {{$ set k}}
    }
    {set, with a relative time} {
        call {set k v ex 100} gives +OK
        takes {k any} events {{n new k} {$ set k} {g expire k}} repeats {{SET k v PXAT *}}
    }
    {set, with an absolute time} {
        call {set k v exat 33177117420} gives +OK
        takes {k any} events {{n new k} {$ set k} {g expire k}} repeats {{SET k v PXAT 33177117420000}}
    }
    {set, in the past} {
        given {{set k v}} call {set k v pxat 1} gives +OK
        missing +OK takes {k any} events {{x expired k}} repeats {{UNLINK k}}
    }
    {set, keeping the time} {
        given {{set k v ex 100}} call {set k w keepttl} gives +OK
        missing +OK takes {k any} events {{$ set k}}
    }
    {set, nx in vain} {
        given {{set k v}} call {set k w nx} gives nil$ gives3 _
        missing +OK takes {k any} repeats {}
    }
    {set, get} {
        given {{set k v}} call {set k w get} gives {$v}
        missing nil$ missing3 _ events {{$ set k}} repeats {{set k w}}
    }
    {set, ifeq} {
        given {{set k v}} call {set k w ifeq v} gives +OK
        missing nil$ missing3 _ events {{$ set k}}
        needs {version 8.1}
    }
    {set, ifeq in vain} {
        given {{set k v}} call {set k w ifeq x} gives nil$ gives3 _
        missing nil$ missing3 _ repeats {}
        needs {version 8.1}
    }
    setex {
        call {setex k 100 v} gives +OK
        takes {k any} events {{n new k} {$ set k} {g expire k}} repeats {{SET k v PXAT *}}
    }
    setnx {
        call {setnx k v} gives :1
        takes {k any} events {{n new k} {$ set k}}
    }
    setrange {
        given {{set k abc}} call {setrange k 1 xy} gives :3
        missing :3 events {{$ setrange k}}
    }
    strlen {
        given {{set k abc}} call {strlen k} gives :3
        missing :0
    }
    substr {
        given {{set k abc}} call {substr k 0 1} gives {$ab}
        missing {$}
    }
    delifeq {
        given {{set k v}} call {delifeq k v} gives :1
        missing :0 events {{g del k}} repeats {{DEL k}}
        needs {version 9.0}
    }
    {delifeq, in vain} {
        given {{set k v}} call {delifeq k w} gives :0
        missing :0 repeats {}
        needs {version 9.0}
    }
    msetex {
        call {msetex 2 k 1 l 2} gives :1
        takes {k any l any} events {{n new k} {$ set k} {n new l} {$ set l}}
        needs {version 9.0}
    }
    {msetex, with a relative time} {
        call {msetex 1 k 1 ex 100} gives :1
        takes {k any} events {{n new k} {$ set k} {g expire k}} repeats {{msetex 1 k 1 PXAT *}}
        needs {version 9.0}
    }
    {msetex, nx in vain} {
        given {{set k v}} call {msetex 1 k 1 nx} gives :0
        missing :1 takes {k any} repeats {}
        needs {version 9.0}
    }
}
