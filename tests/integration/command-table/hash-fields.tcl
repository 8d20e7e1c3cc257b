# Field expiration of hashes. See tests/harness/rows.tcl.
rows hash {
    hexpire {
        given {{hset k f v}} call {hexpire k 100 fields 2 f g} gives {* :1 :-2}
        missing {* :-2 :-2} events {{h hexpire k}} repeats {{HPEXPIREAT k * fields 2 f g}}
    }
    {hexpire, in the past} {
        given {{hset k f v g w}} call {hexpire k 0 fields 1 f} gives {* :2}
        missing {* :-2} events {{h hexpired k}} repeats {{HDEL k f}}
    }
    {hexpire, the last field in the past} {
        given {{hset k f v}} call {hexpire k 0 fields 1 f} gives {* :2}
        missing {* :-2} events {{h hexpired k} {g del k}} repeats {{HDEL k f}}
    }
    {hexpire, in vain} {
        given {{hset k f v}} call {hexpire k 100 xx fields 1 f} gives {* :0}
        missing {* :-2} repeats {}
    }
    hexpireat {
        given {{hset k f v}} call {hexpireat k 33177117420 fields 1 f} gives {* :1}
        missing {* :-2} events {{h hexpire k}} repeats {{HPEXPIREAT k 33177117420000 fields 1 f}}
    }
    hexpiretime {
        given {{hset k f v g w} {hpexpireat k 33177117420000 fields 1 f}} call {hexpiretime k fields 3 f g h} gives \
            {* :33177117420 :-1 :-2}
        missing {* :-2 :-2 :-2}
    }
    hgetdel {
        given {{hset k f v g w}} call {hgetdel k fields 2 f h} gives {* {$v} nil$} gives3 {* {$v} _}
        missing {* nil$ nil$} missing3 {* _ _} events {{h hdel k}}
    }
    {hgetdel, the last} {
        given {{hset k f v}} call {hgetdel k fields 1 f} gives {* {$v}}
        missing {* nil$} missing3 {* _} events {{h hdel k} {g del k}}
    }
    hgetex {
        given {{hset k f v}} call {hgetex k fields 1 f} gives {* {$v}}
        missing {* nil$} missing3 {* _} repeats {}
    }
    {hgetex, with a relative time} {
        given {{hset k f v}} call {hgetex k ex 100 fields 1 f} gives {* {$v}}
        missing {* nil$} missing3 {* _} events {{h hexpire k}} repeats {{HPEXPIREAT k * FIELDS 1 f}}
    }
    {hgetex, persist} {
        given {{hset k f v} {hpexpireat k 33177117420000 fields 1 f}} call {hgetex k persist fields 1 f} gives {* {$v}}
        missing {* nil$} missing3 {* _} events {{h hpersist k}} repeats {{HPERSIST k FIELDS 1 f}}
    }
    {hgetex, in the past} {
        given {{hset k f v g w}} call {hgetex k pxat 1 fields 1 f} gives {* {$v}}
        missing {* nil$} missing3 {* _} events {{h hexpired k}} repeats {{HDEL k f}}
    }
    hpersist {
        given {{hset k f v g w} {hpexpireat k 33177117420000 fields 1 f}} call {hpersist k fields 3 f g h} gives \
            {* :1 :-1 :-2}
        missing {* :-2 :-2 :-2} events {{h hpersist k}}
    }
    hpexpire {
        given {{hset k f v}} call {hpexpire k 100000 fields 1 f} gives {* :1}
        missing {* :-2} events {{h hexpire k}} repeats {{HPEXPIREAT k * fields 1 f}}
    }
    hpexpireat {
        given {{hset k f v}} call {hpexpireat k 33177117420000 fields 1 f} gives {* :1}
        missing {* :-2} events {{h hexpire k}}
    }
    hpexpiretime {
        given {{hset k f v} {hpexpireat k 33177117420000 fields 1 f}} call {hpexpiretime k fields 1 f} gives \
            {* :33177117420000}
        missing {* :-2}
    }
    hpttl {
        given {{hset k f v} {hpexpireat k 33177117420000 fields 1 f}} call {hpttl k fields 2 f g} like {[*] :[0-9]* :-2}
        missing {* :-2 :-2}
    }
    httl {
        given {{hset k f v} {hpexpireat k 33177117420000 fields 1 f}} call {httl k fields 2 f g} like {[*] :[0-9]* :-2}
        missing {* :-2 :-2}
    }
    hsetex {
        given {{hset k f v}} call {hsetex k fields 1 f w} gives :1
        missing :1 events {{h hset k}}
    }
    {hsetex, a new key} {
        call {hsetex k fields 2 f v g w} gives :1
        events {{n new k} {h hset k}}
    }
    {hsetex, with a relative time} {
        given {{hset k f v}} call {hsetex k ex 100 fields 1 f w} gives :1
        missing :1 events {{h hset k} {h hexpire k}} repeats {{hsetex k PXAT * fields 1 f w}}
    }
    {hsetex, fnx in vain} {
        given {{hset k f v}} call {hsetex k fnx fields 1 f w} gives :0
        missing :1 repeats {}
    }
    {hsetex, in the past} {
        given {{hset k f v g x}} call {hsetex k pxat 1 fields 1 f w} gives :1
        missing :1 events {{h hset k} {h hexpire k} {h hexpired k}} repeats {{HDEL k f}}
    }
    {hsetex, keeping the time} {
        given {{hsetex k ex 99999 fields 1 f v}} call {hsetex k fxx keepttl fields 1 f 1} gives :1
        missing :0 events {{h hset k}} repeats {{hsetex k KEEPTTL fields 1 f 1}}
    }
    {hsetex, a condition on the key} {
        needs {version 9.1} given {{hset k f v}} call {hsetex k xx fields 1 f 1} gives :1
        missing :0 events {{h hset k}} repeats {{hsetex k fields 1 f 1}}
    }
    {hincrbyfloat, of a field that expires} {
        needs {command hsetex} given {{hsetex k ex 99999 fields 1 f 1.5}} call {hincrbyfloat k f 0.25} gives {$1.75}
        missing {$0.25} events {{h hincrbyfloat k}} repeats {{HSETEX k PXAT * FIELDS 1 f 1.75}}
    }
}
