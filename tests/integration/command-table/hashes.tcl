# Hashes. See tests/harness/rows.tcl.
rows hash {
    hdel {
        given {{hset k f v g w}} call {hdel k f x} gives :1
        missing :0 events {{h hdel k}}
    }
    {hdel, the last} {
        given {{hset k f v}} call {hdel k f} gives :1
        missing :0 events {{h hdel k} {g del k}}
    }
    hexists {
        given {{hset k f v}} call {hexists k f} gives :1
        missing :0
    }
    hget {
        given {{hset k f v}} call {hget k f} gives {$v}
        missing nil$ missing3 _
    }
    hgetall {
        given {{hset k f v}} call {hgetall k} gives {* {$f} {$v}} gives3 {% {$f} {$v}}
        missing * missing3 %
    }
    hincrby {
        given {{hset k f 5}} call {hincrby k f 3} gives :8
        missing :3 events {{h hincrby k}}
    }
    hincrbyfloat {
        given {{hset k f 1.5}} call {hincrbyfloat k f 0.25} gives {$1.75}
        missing {$0.25} events {{h hincrbyfloat k}} repeats {{HSET k f 1.75}}
    }
    hkeys {
        given {{hset k f v}} call {hkeys k} gives {* {$f}}
        missing *
    }
    hlen {
        given {{hset k f v}} call {hlen k} gives :1
        missing :0
    }
    hmget {
        given {{hset k f v}} call {hmget k f g} gives {* {$v} nil$} gives3 {* {$v} _}
        missing {* nil$ nil$} missing3 {* _ _}
    }
    hmset {
        given {{hset k f v}} call {hmset k f w g x} gives +OK
        missing +OK events {{h hset k}}
    }
    hrandfield {
        given {{hset k f v}} call {hrandfield k} gives {$f}
        missing nil$ missing3 _
    }
    {hrandfield, count} {
        given {{hset k f v}} call {hrandfield k -2 withvalues} gives {* {$f} {$v} {$f} {$v}} gives3 \
            {* {* {$f} {$v}} {* {$f} {$v}}}
        missing *
    }
    hscan {
        given {{hset k f v}} call {hscan k 0} gives {* {$0} {* {$f} {$v}}}
        missing {* {$0} *}
    }
    hset {
        given {{hset k f v}} call {hset k f w g x} gives :1
        missing :2 events {{h hset k}}
    }
    {hset, a new key} {
        call {hset k f w} gives :1
        events {{n new k} {h hset k}}
    }
    hsetnx {
        given {{hset k f v}} call {hsetnx k g w} gives :1
        missing :1 events {{h hset k}}
    }
    {hsetnx, in vain} {
        given {{hset k f v}} call {hsetnx k f w} gives :0
        missing :1 repeats {}
    }
    hstrlen {
        given {{hset k f v}} call {hstrlen k f} gives :1
        missing :0
    }
    hvals {
        given {{hset k f v}} call {hvals k} gives {* {$v}}
        missing *
    }
}
