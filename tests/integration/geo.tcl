# GEOADD, GEODIST, GEOHASH, GEOPOS, GEOSEARCH, GEOSEARCHSTORE, GEORADIUS and its variants. seconds: 3

# The mean of the corners as vectors from the Earth's center, projected to the surface.
proc polygon_center {args} {
    set rad [expr {acos(-1) / 180}]
    lassign {0 0 0} x y z
    foreach {lon lat} $args {
        set x [expr {$x + cos($lat * $rad) * cos($lon * $rad)}]
        set y [expr {$y + cos($lat * $rad) * sin($lon * $rad)}]
        set z [expr {$z + sin($lat * $rad)}]
    }
    return [list [expr {atan2($y, $x) / $rad}] [expr {atan2($z, hypot($x, $y)) / $rad}]]
}

start_server {tags {geo}} {
    test "positions, distances, searches, and invalid arguments" {
        r flushall
        replies {
            {GEOADD Sicily 13.361389 38.115556 Palermo 15.087269 37.502669 Catania} :2
            {ZRANGE Sicily 0 -1 WITHSCORES} {* {$Palermo} {$3479099956230698} {$Catania} {$3479447370796909}}
            {GEOADD Sicily NX XX 1 1 a} "-ERR syntax error"
            {GEOADD Sicily CH 13.361389 38.1 Palermo} :1
            {GEOADD Sicily XX CH 13 38 Foo} :0
            {GEOADD Sicily 200 0 a} "-ERR invalid longitude,latitude pair 200.000000,0.000000"
            {GEOADD Sicily 0 86 a} "-ERR invalid longitude,latitude pair 0.000000,86.000000"
            {GEOADD Sicily x 0 a} "-ERR value is not a valid float"
            {GEOADD Sicily 0 x a} "-ERR value is not a valid float"
            {GEOADD Sicily 0 0} "-ERR wrong number of arguments for 'geoadd' command"
            {GEOADD Sicily 0 0 a 1} "-ERR syntax error"
            {GEOADD Sicily NX 0 0} "-ERR syntax error"
            {GEODIST Sicily Palermo Catania} {$165587.0522}
            {GEODIST Sicily Palermo Catania km} {$165.5871}
            {GEODIST Sicily Palermo Catania mi} {$102.8913}
            {GEODIST Sicily Palermo Catania ft} {$543264.6071}
            {GEODIST Sicily Palermo Catania foo} "-ERR unsupported unit provided. please use M, KM, FT, MI"
            {GEODIST Sicily Palermo none} nil$
            {GEODIST none a b} nil$
            {GEODIST Sicily Palermo Catania km x} "-ERR syntax error"
            {GEOHASH Sicily Palermo Catania none} {* {$sqc88pckwf0} {$sqdtr74hyu0} nil$}
            {GEOHASH none a} {* nil$}
            {GEOHASH Sicily} *
            {GEOPOS Sicily Palermo none} {* {* {$13.36138933897018433} {$38.10000081174143105}} nil*}
            {GEOPOS none a} {* nil*}
            {GEOPOS Sicily} *
            {GEOSEARCH Sicily FROMLONLAT 15 37 BYRADIUS 200 km ASC} {* {$Catania} {$Palermo}}
            {GEOSEARCH Sicily FROMLONLAT 15 37 BYBOX 400 400 km ASC WITHCOORD WITHDIST WITHHASH}\
                {* {* {$Catania} {$56.4413} :3479447370796909 {* {$15.08726745843887329} {$37.50266842333162032}}}\
                {* {$Palermo} {$189.3314} :3479099893316159 {* {$13.36138933897018433} {$38.10000081174143105}}}}
            {GEOSEARCH Sicily FROMMEMBER Palermo BYRADIUS 200 km DESC COUNT 1} {* {$Catania}}
            {GEOSEARCH Sicily FROMMEMBER none BYRADIUS 200 km} "-ERR member none does not exist"
            {GEOSEARCH none FROMMEMBER none BYRADIUS 200 km} *
            {GEOSEARCH Sicily FROMMEMBER Palermo BYRADIUS -1 km} "-ERR radius cannot be negative"
            {GEOSEARCH Sicily FROMMEMBER Palermo BYBOX -1 1 km} "-ERR height or width cannot be negative"
            {GEOSEARCH Sicily FROMMEMBER Palermo BYBOX x 1 km} "-ERR need numeric width"
            {GEOSEARCH Sicily FROMMEMBER Palermo BYBOX 1 x km} "-ERR need numeric height"
            {GEOSEARCH Sicily FROMMEMBER Palermo BYRADIUS x km} "-ERR need numeric radius"
            {GeoSearch Sicily FROMMEMBER Palermo ASC WITHDIST WITHHASH}
                "-ERR exactly one of BYRADIUS, BYBOX and BYPOLYGON can be specified for GeoSearch"
            {GEOSEARCH Sicily BYRADIUS 1 km ASC WITHDIST}
                "-ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for GEOSEARCH"
            {GEOSEARCH Sicily FROMMEMBER Palermo BYRADIUS 1 foo}\
                "-ERR unsupported unit provided. please use M, KM, FT, MI"
            {GEOSEARCH Sicily FROMMEMBER Palermo} "-ERR wrong number of arguments for 'geosearch' command"
            {GEOSEARCH Sicily BYRADIUS 1 km} "-ERR wrong number of arguments for 'geosearch' command"
            {GEOSEARCH Sicily FROMMEMBER Palermo BYRADIUS 1 km BYBOX 1 1 km} "-ERR syntax error"
            {GEOSEARCH Sicily FROMMEMBER Palermo FROMLONLAT 1 1 BYBOX 1 1 km} "-ERR syntax error"
            {GEOSEARCH Sicily FROMMEMBER Palermo BYRADIUS 1 km COUNT 0} "-ERR COUNT must be > 0"
            {GEOSEARCH Sicily FROMMEMBER Palermo BYRADIUS 1 km COUNT x} "-ERR value is not an integer or out of range"
            {GEOSEARCH Sicily FROMMEMBER Palermo BYRADIUS 1 km ANY} "-ERR the ANY argument requires COUNT argument"
            {GEOSEARCH Sicily FROMMEMBER Palermo BYRADIUS 1 km COUNT 1 ANY} {* {$Palermo}}
            {GEOSEARCH Sicily FROMMEMBER Palermo BYRADIUS 1 km STORE x} "-ERR syntax error"
            {GEOSEARCH Sicily FROMMEMBER Palermo BYRADIUS 1 km FOO} "-ERR syntax error"
            {GEOSEARCH Sicily FROMLONLAT 200 1 BYRADIUS 1 km} "-ERR invalid longitude,latitude pair 200.000000,1.000000"
            {GEOSEARCHSTORE d Sicily FROMMEMBER Palermo BYRADIUS 200 km} :2
            {ZRANGE d 0 -1 WITHSCORES} {* {$Palermo} {$3479099893316159} {$Catania} {$3479447370796909}}
            {GEOSEARCHSTORE d Sicily FROMMEMBER Palermo BYRADIUS 200 km STOREDIST} :2
            {ZRANGE d 0 -1 WITHSCORES} {* {$Palermo} {$0} {$Catania} {$165.58705224680682}}
            {GEOSEARCHSTORE d Sicily FROMMEMBER Palermo BYRADIUS 200 km WITHDIST}\
                "-ERR GEOSEARCHSTORE is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            {GEOSEARCHSTORE d none FROMMEMBER Palermo BYRADIUS 200 km} :0
            {EXISTS d} :0
            {GEORADIUS Sicily 15 37 200 km WITHDIST} {* {* {$Palermo} {$189.3314}} {* {$Catania} {$56.4413}}}
            {GEORADIUS Sicily 15 37 200 km STORE d} :2
            {GEORADIUS Sicily 15 37 200 km STOREDIST d} :2
            {GEORADIUS Sicily 15 37 200 km WITHDIST STORE d}\
                "-ERR STORE option in GEORADIUS is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            {GEORADIUS_RO Sicily 15 37 200 km STORE d} "-ERR syntax error"
            {GEORADIUSBYMEMBER Sicily Palermo 200 km} {* {$Palermo} {$Catania}}
            {GEORADIUSBYMEMBER Sicily none 200 km} "-ERR member none does not exist"
            {GEORADIUSBYMEMBER_RO Sicily Palermo 200 km COUNT 1 DESC} {* {$Catania}}
            {GEORADIUS Sicily 15 37 x km} "-ERR need numeric radius"
            {GEORADIUS Sicily 15 97 1 km} "-ERR invalid longitude,latitude pair 15.000000,97.000000"
            {GEORADIUS Sicily 15 37 1 km BYBOX 1 1 km} "-ERR syntax error"
            {GEORADIUS none 15 37 1 km} *
            {GEORADIUS none 15 37 1 km STORE d} :0
            {SET s x} +OK
            {GEOADD s 0 0 a} "-WRONGTYPE Operation against a key holding the wrong kind of value"
            {GEODIST s a b} "-WRONGTYPE Operation against a key holding the wrong kind of value"
            {GEOPOS s a} "-WRONGTYPE Operation against a key holding the wrong kind of value"
            {GEOSEARCH s FROMLONLAT 1 1 BYRADIUS 1 km}\
                "-WRONGTYPE Operation against a key holding the wrong kind of value"
        }
        arity_errors {{geoadd k 1 2} {geodist k a} geohash geopos {geosearch k frommember m byradius 1}\
            {georadius k 1 1 1}}
    }

    test "units and options mean the same in every search" {
        r flushall
        r geoadd g 13.361389 38.115556 a 15.087269 37.502669 b
        replies {
            {geodist g a b m} {$166274.1516}
            {geodist g a b km} {$166.2742}
            {geodist g a b ft} {$545518.8700}
            {geodist g a b mi} {$103.3182}
        }
        set all_of {
            a {* {$a} %s :3479099956230698 {* {$13.36138933897018433} {$38.11555639549629859}}}
            b {* {$b} %s :3479447370796909 {* {$15.08726745843887329} {$37.50266842333162032}}}
        }
        foreach {search near near_km far far_km} {
            {georadius g 15 37} b 56.4413 a 190.4424
            {georadius_ro g 15 37} b 56.4413 a 190.4424
            {georadiusbymember g a} a 0.0000 b 166.2742
            {georadiusbymember_ro g a} a 0.0000 b 166.2742
            {geosearch g fromlonlat 15 37 byradius} b 56.4413 a 190.4424
            {geosearch g frommember a byradius} a 0.0000 b 166.2742
        } {
            foreach {radius unit distance} {100000 m 56441.2579 100 km 56.4413 328084 ft 185174.7305 62.2 mi 35.0711} {
                if {$near eq "a"} {set distance 0.0000}
                assert_typed [list * [list * \$$near \$$distance]] {*}$search $radius $unit withdist
            }
            set both [list * [format [dict get $all_of $near] \$$near_km] [format [dict get $all_of $far] \$$far_km]]
            assert_typed $both {*}$search 300 km withcoord withdist withhash asc
            assert_equal [list $far $near] [r {*}$search 300 km desc]
            assert_equal a [r {*}$search 300 km count 1 any]
        }
        assert_equal 2 [r georadiusbymember g a 300 km store d]
        assert_equal {a b} [r zrange d 0 -1]
        foreach {radius unit distance} \
            {100000 m 5.64412578701582e+4 100 km 56.4412578701582 328084 ft 1.8517473054513845e+5 62.2 mi\
            35.071058862737644} {
            assert_equal 1 [r geosearchstore d g fromlonlat 15 37 byradius $radius $unit storedist]
            assert_equal [list b $distance] [r zrange d 0 -1 withscores]
        }
        replies {
            {geosearchstore d g frommember a byradius 300 km desc count 1} :1
            {zrange d 0 -1} {* {$b}}
            {geosearchstore d g frommember a byradius 300 km asc count 1 any} :1
            {zrange d 0 -1} {* {$a}}
        }
    }

    test "RESP3: coordinates are doubles, distances are texts" {
        r flushall
        r geoadd Sicily 13.361389 38.115556 Palermo
        set c [new_client -resp 3]
        assert_reply $c {* {* ,13.36138933897018433 ,38.11555639549629859} _} geopos Sicily Palermo nosuch
        assert_reply $c {* {* {$Palermo} {$0.0000}}} geosearch Sicily frommember Palermo byradius 1 m withdist
    }

    test "GEOADD is propagated and reported as ZADD" {
        r flushall
        set c [new_client]
        $c psubscribe __keyevent*
        r config set notify-keyspace-events EA
        r geoadd g 1 1 a
        r geosearchstore d g fromlonlat 1 1 byradius 10 km
        r georadius g 1 1 10 km store d
        r geosearchstore d nosuch fromlonlat 1 1 byradius 10 km
        r config set notify-keyspace-events ""
        foreach event {{zadd g} {geosearchstore d} {georadiusstore d} {del d}} {
            lassign [$c -read] kind pattern channel key
            assert_equal $event [list [string range $channel 15 end] $key]
        }
    }

    test "random searches find the same as checking every position" {
        for {set round 0} {$round < [scaled 6 2]} {incr round} {
            r flushall
            set places {}
            for {set i 0} {$i < 200} {incr i} {
                lappend places [expr {rand() * 358 - 179}] [expr {rand() * 160 - 80}] p$i
            }
            r geoadd g {*}$places
            for {set i 0} {$i < 10} {incr i} {
                set longitude [expr {rand() * 300 - 150}]
                set latitude [expr {rand() * 120 - 60}]
                set radius [expr {rand() * 3000}]
                r geoadd g $longitude $latitude here
                set expected {}
                foreach p [r zrange g 0 -1] {
                    if {$p ne "here" && [r geodist g here $p km] <= $radius - 0.001} {lappend expected $p}
                }
                set found [r geosearch g frommember here byradius $radius km]
                foreach p $expected {if {$p ni $found} {fail "$p is missing within $radius km of $longitude $latitude"}}
                foreach p $found {
                    if {[r geodist g here $p km] > $radius + 0.001} {fail "$p is too far"}
                }
                set sorted [r geosearch g frommember here byradius $radius km asc withdist]
                set last 0
                foreach item $sorted {
                    if {[lindex $item 1] < $last} {fail "not in order: $sorted"}
                    set last [lindex $item 1]
                }
                assert_equal [lrange $sorted 0 2] [r geosearch g frommember here byradius $radius km count 3 withdist]
                r zrem g here
            }
        }
    }

    # A replica computes it again.
    test "GEOSEARCHSTORE BYPOLYGON STOREDIST: the distance from the center, to the last bit" \
        -needs {version 9.0} {
        r del points stored
        r geoadd points -95.12636247787333 -12.196460284856254 a
        set corners {-95.95533618551164 -12.963526218357039 -99.05895531425287 -9.51109576373373
            -92.39230670964382 -13.377506505059632}
        r geosearchstore stored points bypolygon 3 {*}$corners storedist
        assert_equal 7.946478707755264e+4 [r zscore stored a]
        r del points stored
    }

    test "BYPOLYGON finds the positions inside, with distances from the center of the corners" \
        -needs {version 9.0} {
        r flushall
        # A U, open to the north: one position in each arm, one in the base, one between the arms, one outside.
        r geoadd g 1 8 west 9 8 east 5 1 base 5 8 between 20 5 beyond
        set u {bypolygon 8 0 0 10 0 10 10 8 10 8 2 2 2 2 10 0 10}
        assert_same_elements {west east base} [r geosearch g {*}$u]
        assert_same_elements {west east base} [r geosearch g BYPOLYGON 8 0 10 2 10 2 2 8 2 8 10 10 10 10 0 0 0]
        assert_equal {beyond} [r geosearch g bypolygon 3 19 4 21 4 20 7]
        assert_equal {} [r geosearch g bypolygon 3 0 20 1 20 0 21]
        r geoadd mean {*}[polygon_center {*}[lrange $u 2 end]] middle
        foreach {place distance} [concat {*}[r geosearch g {*}$u asc withdist]] {
            r zadd mean [r zscore g $place] $place
            assert_range $distance [expr {[r geodist mean middle $place] - 1}] \
                [expr {[r geodist mean middle $place] + 1}]
        }
        set sorted [lmap item [r geosearch g {*}$u desc withdist] {lindex $item 1}]
        assert_equal [lsort -real -decreasing $sorted] $sorted
        assert_equal 1 [llength [r geosearch g {*}$u count 1 any]]
        assert_equal [lrange [r geosearch g {*}$u asc] 0 1] [r geosearch g count 2 {*}$u]
        assert_match {west * {0.99* 7.99*}} [lindex [r geosearch g bypolygon 3 0 7 2 7 1 9 withcoord withhash] 0]
        assert_equal 3 [r geosearchstore d g {*}$u]
        assert_same_elements {west east base} [r zrange d 0 -1]
        assert_equal [r zscore g base] [r zscore d base]
        r geosearchstore d g {*}$u storedist
        assert_equal [lindex [r geosearch g {*}$u asc] 0] [lindex [r zrange d 0 -1] 0]
        assert_equal 0 [r geosearchstore d nosuch {*}$u]
        assert_typed :0 exists d
        assert_typed * geosearch nosuch {*}$u
    }

    test "scores that are not a geohash decode to a position at the edge of the map" {
        r flushall
        foreach {score hash longitude latitude} {
            0                    00bh0hbj200 -179.99999731779098511 -85.05112751263942528
            4503599627370496     bp05b5048p0 -179.99999731779098511 85.0511287799999991
            36028797018963968    00bh0hbj200 180                    -85.05112751263942528
            72057594037927936    bp05b5048p0 -179.99999731779098511 85.0511287799999991
            1.8e19               bp05b5048p0 180                    85.0511287799999991
            inf                  00bh0hbj200 -179.99999731779098511 -85.05112751263942528
            -1                   bp05b5048p0 180                    85.0511287799999991
            -inf                 00bh0hbj200 180                    -85.05112751263942528
        } {
            r zadd g $score a
            assert_equal $hash [r geohash g a]
            assert_equal [list [list $longitude $latitude]] [r geopos g a]
            assert_equal 0.0000 [r geodist g a a]
        }
        r zadd g inf a 4 b
        assert_equal {{b 0.0006}} [r geosearch g frommember a byradius 1 km withdist]
    }

    test "BYPOLYGON: what makes no sense is refused" -needs {version 9.0} {
        r flushall
        r geoadd g 1 1 a
        set triangle {bypolygon 3 0 0 10 0 0 10}
        foreach {arguments error} {
            {bypolygon 2 0 0 1 1}                {GEOSEARCH BYPOLYGON must have at least 3 vertices}
            {bypolygon 0 0 0 1 1}                {GEOSEARCH BYPOLYGON must have at least 3 vertices}
            {bypolygon -1 0 0 1 1}               {GEOSEARCH BYPOLYGON must have at least 3 vertices}
            {bypolygon x 0 0 1 1}                {invalid number of vertices}
            {bypolygon 3 0 0 1 1}                {GEOSEARCH BYPOLYGON must have at least 3 vertices}
            {bypolygon 3 0 0 1 1 0}              {value is not a valid float}
            {bypolygon 9223372036854775807 0 0}  {invalid number of vertices}
            {bypolygon 3 0 0 1 1 0 x}            {value is not a valid float}
            {bypolygon 3 0 0 1 1 181 0}          {invalid longitude,latitude pair 181.000000,0.000000}
            {bypolygon 3 0 0 1 1 0 1 0 2}        {syntax error}
        } {
            foreach key {g nosuch} {assert_typed "-ERR $error" geosearch $key {*}$arguments asc}
        }
        foreach from {{frommember a} {fromlonlat 1 1}} {
            assert_syntax_error geosearch g {*}$from {*}$triangle
            assert_syntax_error geosearchstore d g {*}$triangle {*}$from
        }
        assert_syntax_error geosearch g {*}$triangle byradius 1 m
        assert_syntax_error geosearch g {*}$triangle {*}$triangle
        assert_syntax_error geosearch g fromlonlat 1 1 bybox 1 1 m {*}$triangle
        assert_syntax_error georadius g 1 1 1 m {*}$triangle
    }

    test "GEOSEARCHSTORE and GEORADIUS propagate their result where other servers may choose other members" \
        -needs {ours 1} {
        r flushall
        r geoadd g 1 1 a 1 1 b 1 1 c 1.001 1.001 e
        set f [new_follower]
        set search {fromlonlat 1 1 byradius 100 km}
        foreach {command chosen} [list \
            "geosearchstore d g $search" 0 \
            "geosearchstore d g $search count 3" 0 \
            "geosearchstore d g $search count 9" 0 \
            "geosearchstore d g $search count 9 any" 0 \
            "geosearchstore d g $search count 2" 1 \
            "geosearchstore d g $search count 1 desc" 0 \
            "geosearchstore d g $search count 2 any" 1 \
            "geosearchstore d g $search count 2 storedist" 1 \
            "georadius g 1 1 100 km count 1 store d" 1 \
            "georadiusbymember g a 100 km count 2 asc store d" 1
        ] {
            heard $f
            r {*}$command
            set members [lmap {member score} [r zrange d 0 -1 withscores] {list $score $member}]
            set expected [list MULTI {DEL d} [list ZADD d {*}[concat {*}$members]] EXEC]
            if {!$chosen} {set expected [list $command]}
            assert_equal $expected [heard $f] $command
        }
        # More members than in one command.
        set made 0
        r geoadd g {*}[concat {*}[lmap i [split [string repeat x 200] {}] {list 1 1 m[incr made]}]]
        heard $f
        r geosearchstore d g {*}$search count 150
        set heard [heard $f]
        assert_equal {6 150} [list [llength $heard] [r zcard d]]
        r del d
        foreach command [lrange $heard 2 end-1] {r {*}$command}
        assert_equal 150 [r zcard d]
    }

    test "random polygons contain the positions inside them" -needs {version 9.0} {
        for {set round 0} {$round < [scaled 30 5]} {incr round} {
            r flushall
            # Small polygons, and some of half the map; a kite of four corners can be checked by two inequalities per
            # side.
            set size [expr {10 ** (rand() * 4 - 2)}]
            set x [expr {rand() * (360 - 2 * $size) - 180 + $size}]
            set y [expr {rand() * (160 - min(160, 1.4 * $size)) - 80 + min(80, 0.7 * $size)}]
            set high [expr {min(80, 0.7 * $size)}]
            set expected {}
            for {set i 0} {$i < 100} {incr i} {
                set px [expr {max(-180, min(180, $x + (rand() * 4 - 2) * $size))}]
                set py [expr {max(-85, min(85, $y + (rand() * 4 - 2) * $high))}]
                r geoadd g $px $py p$i
                lassign [lindex [r geopos g p$i] 0] px py
                set far [expr {abs($px - $x) / $size + abs($py - $y) / $high}]
                if {abs($far - 1) < 1e-6} {r zrem g p$i} elseif {$far < 1} {lappend expected p$i}
            }
            set corners [list [expr {$x - $size}] $y $x [expr {$y - $high}] [expr {$x + $size}] $y $x \
                [expr {$y + $high}]]
            assert_same_elements $expected [r geosearch g bypolygon 4 {*}$corners]
        }
    }
}
