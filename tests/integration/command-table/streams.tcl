# Streams. See tests/harness/rows.tcl.
rows stream {
    xack {
        given {{xadd k 1-1 f v} {xgroup create k g 0} {xreadgroup group g c streams k >}} call {xack k g 1-1} gives :1
        missing :0
    }
    xadd {
        given {{xadd k 1-1 f v}} call {xadd k 2-1 f w} gives {$2-1}
        missing {$2-1} events {{t xadd k}}
    }
    {xadd, a new key} {
        call {xadd k * f w} like {$[0-9]*-0}
        events {{n new k} {t xadd k}} repeats {{xadd k *-0 f w}}
    }
    {xadd, trimming} {
        given {{xadd k 1-1 f v} {xadd k 2-1 f v}} call {xadd k maxlen = 1 3-1 f w} gives {$3-1}
        missing {$3-1} events {{t xadd k} {t xtrim k}}
    }
    {xadd, not a new key} {
        call {xadd k nomkstream 1-1 f w} gives nil$ gives3 _
        repeats {}
    }
    xautoclaim {
        given {{xadd k 1-1 f v} {xgroup create k g 0} {xreadgroup group g c streams k >}} call {xautoclaim k g d 0 0}
        gives {* {$0-0} {* {* {$1-1} {* {$f} {$v}}}} *}
        missing {-NOGROUP No such key 'k' or consumer group 'g'} events {{t xgroup-createconsumer k}}
        repeats {{XCLAIM k g d 0 1-1 TIME * RETRYCOUNT 2 FORCE JUSTID LASTID 1-1}}
    }
    {xautoclaim, ids only} {
        given {{xadd k 1-1 f v} {xgroup create k g 0} {xreadgroup group g c streams k >}} call \
            {xautoclaim k g d 0 0 count 5 justid}
        gives {* {$0-0} {* {$1-1}} *}
        missing {-NOGROUP No such key 'k' or consumer group 'g'} events {{t xgroup-createconsumer k}}
        repeats {{XCLAIM k g d 0 1-1 TIME * RETRYCOUNT 1 FORCE JUSTID LASTID 1-1}}
    }
    xclaim {
        given {{xadd k 1-1 f v} {xgroup create k g 0} {xreadgroup group g c streams k >}} call {xclaim k g d 0 1-1}
        gives {* {* {$1-1} {* {$f} {$v}}}}
        missing {-NOGROUP No such key 'k' or consumer group 'g'} events {{t xgroup-createconsumer k}}
        repeats {{XCLAIM k g d 0 1-1 TIME * RETRYCOUNT 2 FORCE JUSTID LASTID 1-1}}
    }
    {xclaim, ids only} {
        given {{xadd k 1-1 f v} {xgroup create k g 0} {xreadgroup group g c streams k >}}
        call {xclaim k g d 0 1-1 retrycount 5 force justid} gives {* {$1-1}}
        missing {-NOGROUP No such key 'k' or consumer group 'g'} events {{t xgroup-createconsumer k}}
        repeats {{XCLAIM k g d 0 1-1 TIME * RETRYCOUNT 5 FORCE JUSTID LASTID 1-1}}
    }
    xdel {
        given {{xadd k 1-1 f v} {xadd k 2-1 f v}} call {xdel k 1-1 5-1} gives :1
        missing :0 events {{t xdel k}}
    }
    xgroup|create {
        given {{xadd k 1-1 f v}} call {xgroup create k g 0} gives +OK
        missing {-ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the\
            MKSTREAM option to create an empty stream automatically.}
        events {{t xgroup-create k}}
    }
    {xgroup|create, a new key} {
        call {xgroup create k g $ mkstream} gives +OK
        events {{n new k} {t xgroup-create k}} repeats {{xgroup create k g {$} mkstream}}
    }
    xgroup|createconsumer {
        given {{xadd k 1-1 f v} {xgroup create k g 0}} call {xgroup createconsumer k g c} gives :1
        missing {-ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the\
            MKSTREAM option to create an empty stream automatically.}
        events {{t xgroup-createconsumer k}}
    }
    xgroup|delconsumer {
        given {{xadd k 1-1 f v} {xgroup create k g 0} {xgroup createconsumer k g c}} call \
            {xgroup delconsumer k g c} gives :0
        missing {-ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the\
            MKSTREAM option to create an empty stream automatically.}
        events {{t xgroup-delconsumer k}}
    }
    xgroup|destroy {
        given {{xadd k 1-1 f v} {xgroup create k g 0}} call {xgroup destroy k g} gives :1
        missing {-ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the\
            MKSTREAM option to create an empty stream automatically.}
        events {{t xgroup-destroy k}}
    }
    xgroup|setid {
        given {{xadd k 1-1 f v} {xgroup create k g 0}} call {xgroup setid k g $} gives +OK
        missing {-ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the\
            MKSTREAM option to create an empty stream automatically.}
        events {{t xgroup-setid k}} repeats {{xgroup setid k g {$}}}
    }
    xinfo|consumers {
        given {{xadd k 1-1 f v} {xgroup create k g 0}} call {xinfo consumers k g} gives *
        missing {-ERR no such key}
    }
    xinfo|groups {
        given {{xadd k 1-1 f v} {xgroup create k g 0}} call {xinfo groups k}
        gives {* {* {$name} {$g} {$consumers} :0 {$pending} :0 {$last-delivered-id} {$0-0}\
            {$entries-read} nil$ {$lag} :1}}
        gives3 {* {% {$name} {$g} {$consumers} :0 {$pending} :0 {$last-delivered-id} {$0-0}\
            {$entries-read} _ {$lag} :1}}
        missing {-ERR no such key}
    }
    xinfo|stream {
        given {{xadd k 1-1 f v}} call {xinfo stream k}
        gives {* {$length} :1 {$radix-tree-keys} :1 {$radix-tree-nodes} :2 {$last-generated-id} {$1-1}\
            {$max-deleted-entry-id} {$0-0} {$entries-added} :1 {$recorded-first-entry-id} {$1-1} {$groups} :0\
            {$first-entry} {* {$1-1} {* {$f} {$v}}} {$last-entry} {* {$1-1} {* {$f} {$v}}}}
        gives3 {% {$length} :1 {$radix-tree-keys} :1 {$radix-tree-nodes} :2 {$last-generated-id} {$1-1}\
            {$max-deleted-entry-id} {$0-0} {$entries-added} :1 {$recorded-first-entry-id} {$1-1} {$groups} :0\
            {$first-entry} {* {$1-1} {* {$f} {$v}}} {$last-entry} {* {$1-1} {* {$f} {$v}}}}
        missing {-ERR no such key}
    }
    {xinfo|stream, full} {
        given {{xadd k 1-1 f v} {xgroup create k g 0}} call {xinfo stream k full count 1}
        gives {* {$length} :1 {$radix-tree-keys} :1 {$radix-tree-nodes} :2 {$last-generated-id} {$1-1}\
            {$max-deleted-entry-id} {$0-0} {$entries-added} :1 {$recorded-first-entry-id} {$1-1} {$entries}\
            {* {* {$1-1} {* {$f} {$v}}}} {$groups}\
            {* {* {$name} {$g} {$last-delivered-id} {$0-0} {$entries-read} nil$ {$lag} :1 {$pel-count} :0 {$pending} *\
            {$consumers} *}}}
        gives3 {% {$length} :1 {$radix-tree-keys} :1 {$radix-tree-nodes} :2 {$last-generated-id} {$1-1}\
            {$max-deleted-entry-id} {$0-0} {$entries-added} :1 {$recorded-first-entry-id} {$1-1} {$entries}\
            {* {* {$1-1} {* {$f} {$v}}}} {$groups}\
            {* {% {$name} {$g} {$last-delivered-id} {$0-0} {$entries-read} _ {$lag} :1 {$pel-count} :0 {$pending} *\
            {$consumers} *}}}
        missing {-ERR no such key}
    }
    xlen {
        given {{xadd k 1-1 f v}} call {xlen k} gives :1
        missing :0
    }
    xpending {
        given {{xadd k 1-1 f v} {xgroup create k g 0} {xreadgroup group g c streams k >}} call {xpending k g}
        gives {* :1 {$1-1} {$1-1} {* {* {$c} {$1}}}}
        missing {-NOGROUP No such key 'k' or consumer group 'g'}
    }
    {xpending, each} {
        given {{xadd k 1-1 f v} {xgroup create k g 0} {xreadgroup group g c streams k >}} call \
            {xpending k g idle 100000 - + 10 c} gives *
        missing {-NOGROUP No such key 'k' or consumer group 'g'}
    }
    xrange {
        given {{xadd k 1-1 f v}} call {xrange k - + count 1} gives {* {* {$1-1} {* {$f} {$v}}}}
        missing *
    }
    xread {
        given {{xadd k 1-1 f v}} call {xread count 1 streams k 0} gives {* {* {$k} {* {* {$1-1} {* {$f} {$v}}}}}}
        gives3 {% {$k} {* {* {$1-1} {* {$f} {$v}}}}}
        missing nil* missing3 _
    }
    {xread, nothing new} {
        given {{xadd k 1-1 f v}} call {xread block 10 streams k $} gives nil* gives3 _
        missing nil* missing3 _
    }
    xreadgroup {
        given {{xadd k 1-1 f v} {xgroup create k g 0}} call {xreadgroup group g c count 1 streams k >}
        gives {* {* {$k} {* {* {$1-1} {* {$f} {$v}}}}}} gives3 {% {$k} {* {* {$1-1} {* {$f} {$v}}}}}
        missing {-NOGROUP No such key 'k' or consumer group 'g' in XREADGROUP with GROUP option} events \
            {{t xgroup-createconsumer k}}
        repeats {MULTI {XCLAIM k g c 0 1-1 TIME * RETRYCOUNT 1 FORCE JUSTID LASTID 1-1}\
            {XGROUP SETID k g 1-1 ENTRIESREAD 1} EXEC}
    }
    {xreadgroup, noack} {
        given {{xadd k 1-1 f v} {xgroup create k g 0}} call {xreadgroup group g c noack streams k >}
        gives {* {* {$k} {* {* {$1-1} {* {$f} {$v}}}}}} gives3 {% {$k} {* {* {$1-1} {* {$f} {$v}}}}}
        missing {-NOGROUP No such key 'k' or consumer group 'g' in XREADGROUP with GROUP option} events \
            {{t xgroup-createconsumer k}}
        repeats {MULTI {XGROUP CREATECONSUMER k g c} {XGROUP SETID k g 1-1 ENTRIESREAD 1} EXEC}
    }
    {xreadgroup, history} {
        given {{xadd k 1-1 f v} {xgroup create k g 0} {xreadgroup group g c streams k >}} call \
            {xreadgroup group g c streams k 0}
        gives {* {* {$k} {* {* {$1-1} {* {$f} {$v}}}}}} gives3 {% {$k} {* {* {$1-1} {* {$f} {$v}}}}}
        missing {-NOGROUP No such key 'k' or consumer group 'g' in XREADGROUP with GROUP option} repeats \
            {{XCLAIM k g c 0 1-1 TIME * RETRYCOUNT 2 FORCE JUSTID LASTID 1-1}}
    }
    xrevrange {
        given {{xadd k 1-1 f v}} call {xrevrange k + - count 1} gives {* {* {$1-1} {* {$f} {$v}}}}
        missing *
    }
    xsetid {
        given {{xadd k 1-1 f v}} call {xsetid k 5-5 entriesadded 7 maxdeletedid 0-0} gives +OK
        missing {-ERR no such key} events {{t xsetid k}}
    }
    xtrim {
        given {{xadd k 1-1 f v} {xadd k 2-1 f v}} call {xtrim k maxlen 1} gives :1
        missing :0 events {{t xtrim k}}
    }
    {xtrim, about} {
        given {{xadd k 1-1 f v} {xadd k 2-1 f v}} call {xtrim k minid ~ 1 limit 10} gives :0
        missing :0 repeats {}
    }
}
