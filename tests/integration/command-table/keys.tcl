# Keys of any type. See tests/harness/rows.tcl.
rows generic {
    copy {
        given {{set k v}} call {copy k l} gives :1
        missing :0 events {{n new l} {g copy_to l}}
    }
    {copy, over another} {
        given {{set k v} {set l w}} call {copy k l replace} gives :1
        missing :0 events {{n new l} {g copy_to l}}
    }
    {copy, to another database} {
        given {{set k v}} call {copy k l db 1} gives :1
        missing :0 events {{n new l} {g copy_to l}}
    }
    del {
        given {{set k v}} call {del k l} gives :1
        missing :0 events {{g del k}}
    }
    dump {
        given {{set k v}} call {dump k} gives "\$\x00\x01v\x0b\x00\xf8\xd7s\xc1\xe4\xa7cG"
        missing nil$ missing3 _
    }
    exists {
        given {{set k v}} call {exists k l k} gives :2
        missing :0 events {{m keymiss l}}
    }
    expire {
        given {{set k v}} call {expire k 100} gives :1
        missing :0 events {{g expire k}} repeats {{PEXPIREAT k *}}
    }
    {expire, in the past} {
        given {{set k v}} call {expire k -1} gives :1
        missing :0 events {{x expired k}} repeats {{UNLINK k}}
    }
    {expire, in vain} {
        given {{set k v}} call {expire k 100 xx} gives :0
        missing :0 repeats {}
    }
    expireat {
        given {{set k v}} call {expireat k 33177117420} gives :1
        missing :0 events {{g expire k}} repeats {{PEXPIREAT k 33177117420000}}
    }
    expiretime {
        given {{set k v exat 33177117420}} call {expiretime k} gives :33177117420
        missing :-2
    }
    keys {
        given {{set k v}} call {keys *} gives {* {$k}}
        missing *
    }
    migrate {
        call {migrate 127.0.0.1 1 k 0 100} gives +NOKEY
        events {{m keymiss k}} repeats {}
    }
    move {
        given {{set k v}} call {move k 1} gives :1
        missing :0 events {{n new k} {g move_from k} {g move_to k}}
    }
    object|encoding {
        given {{set k v}} call {object encoding k} gives {$embstr}
        missing nil$ missing3 _
    }
    object|freq {
        config {maxmemory-policy allkeys-lfu} given {{set k v}} call {object freq k} gives :5
        missing nil$ missing3 _
    }
    object|idletime {
        given {{set k v}} call {object idletime k} gives :0
        missing nil$ missing3 _
    }
    object|refcount {
        given {{set k v}} call {object refcount k} gives :1
        missing nil$ missing3 _
    }
    persist {
        given {{set k v ex 100}} call {persist k} gives :1
        missing :0 events {{g persist k}}
    }
    {persist, in vain} {
        given {{set k v}} call {persist k} gives :0
        missing :0 repeats {}
    }
    pexpire {
        given {{set k v}} call {pexpire k 100000} gives :1
        missing :0 events {{g expire k}} repeats {{PEXPIREAT k *}}
    }
    pexpireat {
        given {{set k v}} call {pexpireat k 33177117420000} gives :1
        missing :0 events {{g expire k}}
    }
    {pexpireat, in the past} {
        given {{set k v}} call {pexpireat k 1} gives :1
        missing :0 events {{x expired k}} repeats {{UNLINK k}}
    }
    pexpiretime {
        given {{set k v pxat 33177117420000}} call {pexpiretime k} gives :33177117420000
        missing :-2
    }
    pttl {
        given {{set k v ex 100}} call {pttl k} like {:[0-9]*}
        missing :-2
    }
    randomkey {
        given {{set k v}} call randomkey gives {$k}
        missing nil$ missing3 _
    }
    rename {
        given {{set k v}} call {rename k l} gives +OK
        missing {-ERR no such key} events {{n new l} {g rename_from k} {g rename_to l}}
    }
    {rename, over another} {
        given {{set k v} {set l w}} call {rename k l} gives +OK
        missing {-ERR no such key} events {{n new l} {g rename_from k} {g rename_to l}}
    }
    renamenx {
        given {{set k v}} call {renamenx k l} gives :1
        missing {-ERR no such key} events {{n new l} {g rename_from k} {g rename_to l}}
    }
    {renamenx, in vain} {
        given {{set k v} {set l w}} call {renamenx k l} gives :0
        missing {-ERR no such key} repeats {}
    }
    restore {
        call {restore k 0 "\x00\x01v\x0b\x00\xf8\xd7s\xc1\xe4\xa7cG"} gives +OK
        events {{n new k} {g restore k}} repeats {{restore k 0 "\x00\x01v\x0b\x00\xf8\xd7s\xc1\xe4\xa7cG"}}
    }
    {restore, with a relative time} {
        call {restore k 100000 "\x00\x01v\x0b\x00\xf8\xd7s\xc1\xe4\xa7cG"} gives +OK
        events {{n new k} {g restore k}} repeats {{restore k * "\x00\x01v\x0b\x00\xf8\xd7s\xc1\xe4\xa7cG" ABSTTL}}
    }
    {restore, over another} {
        given {{set k x}} call {restore k 33177117420000 "\x00\x01v\x0b\x00\xf8\xd7s\xc1\xe4\xa7cG" replace absttl} \
            gives +OK
        missing +OK events {{n new k} {g restore k}} repeats \
            {{restore k 33177117420000 "\x00\x01v\x0b\x00\xf8\xd7s\xc1\xe4\xa7cG" replace absttl}}
    }
    {restore, in the past} {
        given {{set k x}} call {restore k 1 "\x00\x01v\x0b\x00\xf8\xd7s\xc1\xe4\xa7cG" replace absttl} gives +OK
        missing +OK events {{g del k}} repeats {{UNLINK k}}
    }
    scan {
        given {{set k v}} call {scan 0} gives {* {$0} {* {$k}}}
        missing {* {$0} *}
    }
    sort {
        given {{rpush k 2 1}} call {sort k} gives {* {$1} {$2}}
        missing * takes {k {list set zset}} repeats {}
    }
    {sort, store} {
        given {{rpush k 2 1}} call {sort k store d} gives :2
        missing :0 takes {k {list set zset}} events {{n new d} {l sortstore d}}
    }
    {sort, store nothing} {
        given {{set d x}} call {sort k store d} gives :0
        missing :0 takes {k {list set zset}} events {{m keymiss k} {g del d}}
    }
    sort_ro {
        given {{rpush k 2 1}} call {sort_ro k desc} gives {* {$2} {$1}}
        missing * takes {k {list set zset}}
    }
    touch {
        given {{set k v}} call {touch k l} gives :1
        missing :0 events {{m keymiss l}}
    }
    ttl {
        given {{set k v exat 33177117420}} call {ttl k} like {:[0-9]*}
        missing :-2
    }
    type {
        given {{set k v}} call {type k} gives +string
        missing +none
    }
    unlink {
        given {{set k v}} call {unlink k l} gives :1
        missing :0 events {{g del k}}
    }
    wait {
        call {wait 0 10} gives :0
    }
    waitaof {
        call {waitaof 0 0 10} gives {* :0 :0}
    }
}
