# Hashes. See tests/lib/rows.tcl.
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
        given {{hset k f v}} call {hrandfield k -2 withvalues} gives {* {$f} {$v} {$f} {$v}} gives3 {* {* {$f} {$v}} {* {$f} {$v}}}
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
    hexpire {
        given {{hset k f v g w}} call {hexpire k 99999 fields 2 f x} gives {* :1 :-2}
        missing {* :-2 :-2} events {{h hexpire k}} repeats {{HPEXPIREAT k * FIELDS 1 f}}
    }
    {hexpire, a condition} {
        given {{hset k f v g w} {hpexpireat k 99999999999000 fields 1 g}} call {hexpire k 99999 nx fields 2 f g} gives {* :1 :0}
        missing {* :-2 :-2} events {{h hexpire k}} repeats {{HPEXPIREAT k * FIELDS 1 f}}
    }
    {hexpire, at once} {
        given {{hset k f v g w}} call {hexpire k 0 fields 2 f x} gives {* :2 :-2}
        missing {* :-2 :-2} events {{h hexpired k}} repeats {{HDEL k f}}
    }
    {hexpire, the last at once} {
        given {{hset k f v}} call {hexpire k 0 fields 1 f} gives {* :2}
        missing {* :-2} events {{h hexpired k} {g del k}} repeats {{HDEL k f}}
    }
    hpexpire {
        given {{hset k f v}} call {hpexpire k 99999000 fields 1 f} gives {* :1}
        missing {* :-2} events {{h hexpire k}} repeats {{HPEXPIREAT k * FIELDS 1 f}}
    }
    hexpireat {
        given {{hset k f v}} call {hexpireat k 99999999999 fields 1 f} gives {* :1}
        missing {* :-2} events {{h hexpire k}} repeats {{HPEXPIREAT k 99999999999000 FIELDS 1 f}}
    }
    hpexpireat {
        given {{hset k f v}} call {hpexpireat k 99999999999123 fields 1 f} gives {* :1}
        missing {* :-2} events {{h hexpire k}} repeats {{HPEXPIREAT k 99999999999123 FIELDS 1 f}}
    }
    hpersist {
        given {{hset k f v g w} {hexpire k 99999 fields 1 f}} call {hpersist k fields 3 f g x} gives {* :1 :-1 :-2}
        missing {* :-2 :-2 :-2} events {{h hpersist k}} repeats {{HPERSIST k FIELDS 1 f}}
    }
    httl {
        given {{hset k f v} {hexpireat k 253402300799 fields 1 f}} call {httl k fields 1 f} like {\* :2*}
        missing {* :-2}
    }
    hpttl {
        given {{hset k f v} {hexpireat k 253402300799 fields 1 f}} call {hpttl k fields 1 f} like {\* :2*}
        missing {* :-2}
    }
    hexpiretime {
        given {{hset k f v g w} {hpexpireat k 99999999999123 fields 1 f}} call {hexpiretime k fields 3 f g x} gives {* :99999999999 :-1 :-2}
        missing {* :-2 :-2 :-2}
    }
    hpexpiretime {
        given {{hset k f v g w} {hpexpireat k 99999999999123 fields 1 f}} call {hpexpiretime k fields 3 f g x} gives {* :99999999999123 :-1 :-2}
        missing {* :-2 :-2 :-2}
    }
    hgetex {
        given {{hset k f v}} call {hgetex k ex 99999 fields 2 f x} gives {* {$v} nil$} gives3 {* {$v} _}
        missing {* nil$ nil$} missing3 {* _ _} events {{h hexpire k}} repeats {{HPEXPIREAT k * FIELDS 1 f}}
    }
    {hgetex, nothing else} {
        given {{hset k f v}} call {hgetex k fields 1 f} gives {* {$v}}
        missing {* nil$} missing3 {* _} repeats {}
    }
    {hgetex, at once} {
        given {{hset k f v}} call {hgetex k exat 1 fields 1 f} gives {* {$v}}
        missing {* nil$} missing3 {* _} events {{h hexpired k} {g del k}} repeats {{HDEL k f}}
    }
    {hgetex, persist} {
        given {{hset k f v g w} {hexpire k 99999 fields 1 f}} call {hgetex k persist fields 2 f g} gives {* {$v} {$w}}
        missing {* nil$ nil$} missing3 {* _ _} events {{h hpersist k}} repeats {{HPERSIST k FIELDS 1 f}}
    }
    hsetex {
        given {{hset k f v}} call {hsetex k fnx ex 99999 fields 2 g 1 h 2} gives :1
        missing :1 events {{h hset k} {h hexpire k}} repeats {{hsetex k fnx PXAT * fields 2 g 1 h 2}}
    }
    {hsetex, no time} {
        given {{hset k f v}} call {hsetex k fxx fields 1 f 1} gives :1
        missing :0 events {{h hset k}}
    }
    {hsetex, keeping the time} {
        given {{hsetex k ex 99999 fields 1 f v}} call {hsetex k keepttl fields 1 f 1} gives :1
        missing :1 events {{h hset k}}
    }
    {hsetex, a condition on the key} {
        needs {version 9.1} given {{hset k f v}} call {hsetex k xx fields 1 f 1} gives :1
        missing :0 events {{h hset k}}
    }
    {hsetex, at once} {
        given {{hset k f v g w}} call {hsetex k px 0 fields 2 f 1 x 2} gives :1
        missing :1 events {{h hexpired k}} repeats {{HDEL k f}}
    }
    hgetdel {
        given {{hset k f v g w}} call {hgetdel k fields 2 f x} gives {* {$v} nil$} gives3 {* {$v} _}
        missing {* nil$ nil$} missing3 {* _ _} events {{h hdel k}} repeats {{HDEL k f}}
    }
    {hgetdel, the last} {
        given {{hset k f v}} call {hgetdel k fields 1 f} gives {* {$v}}
        missing {* nil$} missing3 {* _} events {{h hdel k} {g del k}} repeats {{HDEL k f}}
    }
}
