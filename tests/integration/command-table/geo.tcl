# Positions. See tests/harness/rows.tcl.
rows geo {
    geoadd {
        given {{geoadd k 13.361389 38.115556 a}} call {geoadd k 15.087269 37.502669 b} gives :1
        missing :1 events {{z zadd k}} repeats {{ZADD k 3479447370796909 b}}
    }
    geodist {
        given {{geoadd k 13.361389 38.115556 a 15.087269 37.502669 b}} call {geodist k a b km} gives {$166.2742}
        missing nil$ missing3 _
    }
    geohash {
        given {{geoadd k 13.361389 38.115556 a}} call {geohash k a b} gives {* {$sqc8b49rny0} nil$} gives3 \
            {* {$sqc8b49rny0} _}
        missing {* nil$ nil$} missing3 {* _ _}
    }
    geopos {
        given {{geoadd k 13.361389 38.115556 a}} call {geopos k a b} gives \
            {* {* {$13.36138933897018433} {$38.11555639549629859}} nil*}
        gives3 {* {* ,13.36138933897018433 ,38.11555639549629859} _}
        missing {* nil* nil*} missing3 {* _ _}
    }
    georadius {
        given {{geoadd k 13.361389 38.115556 a 15.087269 37.502669 b}} call {georadius k 15 37 100 km withdist}
        gives {* {* {$b} {$56.4413}}}
        missing * repeats {}
    }
    {georadius, store} {
        given {{geoadd k 13.361389 38.115556 a 15.087269 37.502669 b}} call {georadius k 15 37 100 km store d} gives :1
        missing :0 takes {d any} events {{n new d} {z georadiusstore d}}
    }
    georadius_ro {
        given {{geoadd k 13.361389 38.115556 a 15.087269 37.502669 b}} call {georadius_ro k 15 37 100 km} gives {* {$b}}
        missing *
    }
    georadiusbymember {
        given {{geoadd k 13.361389 38.115556 a 15.087269 37.502669 b}} call {georadiusbymember k a 100 km withhash}
        gives {* {* {$a} :3479099956230698}}
        missing * repeats {}
    }
    {georadiusbymember, storedist} {
        given {{geoadd k 13.361389 38.115556 a 15.087269 37.502669 b}} call \
            {georadiusbymember k a 10 km storedist d} gives :1
        missing :0 takes {d any} events {{n new d} {z georadiusstore d}}
    }
    georadiusbymember_ro {
        given {{geoadd k 13.361389 38.115556 a 15.087269 37.502669 b}} call {georadiusbymember_ro k a 100 km} \
            gives {* {$a}}
        missing *
    }
    geosearch {
        given {{geoadd k 13.361389 38.115556 a 15.087269 37.502669 b}} call \
            {geosearch k frommember a byradius 10 km withcoord}
        gives {* {* {$a} {* {$13.36138933897018433} {$38.11555639549629859}}}}
        gives3 {* {* {$a} {* ,13.36138933897018433 ,38.11555639549629859}}}
        missing *
    }
    {geosearch, a polygon} {
        needs {version 9.0} given {{geoadd k 13.361389 38.115556 a 15.087269 37.502669 b}} call \
            {geosearch k bypolygon 3 13 38 14 38 13.5 39} gives {* {$a}}
        missing *
    }
    geosearchstore {
        given {{geoadd k 13.361389 38.115556 a 15.087269 37.502669 b}} call \
            {geosearchstore d k fromlonlat 15 37 bybox 400 400 km asc}
        gives :2
        missing :0 takes {d any} events {{n new d} {z geosearchstore d}}
    }
    {geosearchstore, nothing comes of it} {
        given {{set d x}} call {geosearchstore d k fromlonlat 15 37 bybox 400 400 km} gives :0
        missing :0 takes {d any} events {{m keymiss k} {g del d}}
    }
}
