# Field expiration of hashes. seconds: 8

set ::far 99999999999123
set ::set_time {hexpire hpexpire hexpireat hpexpireat}
set ::ask_time {httl hpttl hexpiretime hpexpiretime}
set ::numfields "-ERR numfields should be greater than 0 and match the provided number of fields"

# The time in `ms` milliseconds, in the format of the command.
proc time_for {command ms} {
    set at [expr {[clock milliseconds] + $ms}]
    switch $command {
        hexpire {return [expr {$ms / 1000}]}
        hpexpire {return $ms}
        hexpireat {return [expr {$at / 1000}]}
        hpexpireat {return $at}
    }
}
# A hash with these fields, which have expired but are not deleted, and one field that remains.
proc make_expired {key fields {stays {stays s}}} {
    r del $key
    r hsetex $key px 1 fields [llength $fields] {*}[concat {*}[lmap f $fields {list $f v}]]
    if {$stays ne ""} {r hset $key {*}$stays}
    wait_for_condition 2000 {[r hget $key [lindex $fields 0]] eq ""}
}

start_server {tags {hash hash-fields}} {
    if {[unmet_need {command hexpire}] ne ""} return

    # --- Setting times ----------------------------------------------------------------------------------------------

    test "HEXPIRE, HPEXPIRE, HEXPIREAT and HPEXPIREAT set the time of fields" {
        r del h
        r hset h a 1 b 2 c 3
        foreach command $::set_time {
            r hpersist h fields 3 a b c
            assert_typed {* :1 :-2 :1} $command h [time_for $command 100000] fields 3 a none b
            foreach ttl [r hpttl h fields 2 a b] {assert_range $ttl 95000 100000}
            foreach ttl [r httl h fields 2 a b] {assert_range $ttl 95 100}
            assert_typed {* :-1 :-2} httl h fields 2 c none
            assert_equal {1 2 3} [r hmget h a b c]
        }
        replies {
            {hpexpireat h 99999999999123 FIELDS 1 a} {* :1}
            {hpexpiretime h FIELDS 1 a} {* :99999999999123}
            {hexpiretime h fields 1 a} {* :99999999999}
            {HEXPIREAT h 99999999999 Fields 1 a} {* :1}
            {hpexpiretime h fields 1 a} {* :99999999999000}
        }
    }

    test "a hash with a field that expires is a table, and any field of it may have a time" {
        r del h
        r hset h a 1 b 2 "" empty
        r hset h [string repeat f 300] long big [string repeat v 5000]
        r del h2
        r hset h2 a 1
        assert_encoding listpack h2
        assert_typed {* :1} hpexpireat h2 $::far fields 1 a
        assert_encoding hashtable h2
        assert_typed {* :1} hpersist h2 fields 1 a
        assert_encoding hashtable h2
        set fields [list a b "" [string repeat f 300] big]
        assert_typed {* :1 :1 :1 :1 :1} hpexpireat h $::far fields 5 {*}$fields
        assert_typed "* :$::far :$::far :$::far :$::far :$::far" hpexpiretime h fields 5 {*}$fields
        assert_equal [list 1 2 empty long [string repeat v 5000]] [r hmget h {*}$fields]
        assert_typed {* :1 :1 :1 :1 :1} hpersist h fields 5 {*}$fields
        assert_equal [list 1 2 empty long [string repeat v 5000]] [r hmget h {*}$fields]
    }

    test "NX, XX, GT and LT" {
        r del h
        r hset h timed 1 never 2
        foreach {option at replies} {
            NX 2000 {:0 :1}   XX 2000 {:1 :0}   GT 2000 {:1 :0}   GT 500 {:0 :0}   GT 1000 {:0 :0}
            LT 500 {:1 :1}    LT 2000 {:0 :1}   LT 1000 {:0 :1}   {XX GT} 2000 {:1 :0}   {xx lt} 500\
                {:1 :0}   {lt XX} 2000 {:0 :0}
        } {
            r hpersist h fields 2 timed never
            r hexpireat h 99999991000 fields 1 timed
            set at [expr {99999990000 + $at}]
            assert_typed [concat * $replies] hexpireat h $at {*}$option fields 2 timed never
            set want [lmap reply $replies before {99999991000 -1} {expr {$reply eq ":1" ? $at : $before}}]
            assert_equal $want [r hexpiretime h fields 2 timed never] "$option $at"
        }
    }

    test "a time of zero, now or in the past deletes fields immediately" {
        foreach {command time} {hexpire 0 hpexpire 0 hexpireat 1 hexpireat 0 hpexpireat 0 hpexpireat 1} {
            r del h
            r hset h a 1 b 2 c 3
            assert_typed {* :2 :-2 :2 :-2} $command h $time fields 4 a none b a
            assert_typed {* {$c} {$3}} hgetall h
            assert_typed {* :0} $command h $time xx fields 1 c
            assert_typed {* :0} $command h $time gt fields 1 c
            assert_typed {* :2} $command h $time lt fields 1 c
            assert_typed :0 exists h
        }
    }

    test "a field that is named twice is looked at twice" {
        r del h
        r hset h a 1
        replies {
            {hpexpireat h 99999999999123 nx fields 2 a a} {* :1 :0}
            {hpersist h fields 2 a a} {* :1 :-1}
            {hgetdel h fields 2 a a} {* {$1} nil$}
            {exists h} :0
            {hsetex h fields 2 a 1 a 2} :1
            {hget h a} {$2}
        }
    }

    test "times and conditions that make no sense are refused" {
        r del h none
        r hset h f v
        foreach key {h none} {
            foreach command $::set_time {
                foreach bad {x "" 1.5 " 1" 9223372036854775808} {
                    assert_typed "-ERR value is not an integer or out of range" $command $key $bad fields 1 f
                }
                assert_typed "-ERR invalid expire time in '$command' command" $command $key -1 fields 1 f
                foreach {options text} {
                    {nx xx} {NX and XX, GT or LT options at the same time are not compatible}
                    {nx gt} {NX and XX, GT or LT options at the same time are not compatible}
                    {lt nx} {NX and XX, GT or LT options at the same time are not compatible}
                    {gt lt} {GT and LT options at the same time are not compatible}
                    {foo} {Unsupported option foo}
                } {
                    assert_typed "-ERR $text" $command $key 99999999999 {*}$options fields 1 f
                }
            }
            foreach {command bad} {hexpire 9223372036854775807 hexpire 9223372036854775 hpexpire 9223372036854775807\
                hexpireat 9223372036854776} {
                assert_typed "-ERR invalid expire time in '$command' command" $command $key $bad fields 1 f
            }
        }
        assert_typed {* :-1} httl h fields 1 f
        assert_typed {* :1} hpexpireat h 9223372036854775807 fields 1 f
        assert_typed {* :9223372036854775807} hpexpiretime h fields 1 f
    }

    # --- The form of the commands ------------------------------------------------------------------------------------

    test "FIELDS: the word, the number and the fields must fit" {
        r del h
        r hset h a 1 b 2
        foreach {command before} {
            hexpire 100 hpexpire 100 hexpireat 99999999999 hpexpireat 99999999999123 {hexpire nx} {100 nx}
            httl {} hpttl {} hexpiretime {} hpexpiretime {} hpersist {} hgetdel {} hgetex {} {hgetex ex} {ex 100}
        } {
            set command [lindex $command 0]
            foreach args {{fields 0 a} {fields -1 a} {fields 2 a} {fields 1 a b} {fields 3 a b}\
                {fields 9223372036854775807 a} {fields 4294967297 a}} {
                set error [expr {[string match h*tt* $command] || [string match h*expiretime $command] ?\
                    "-ERR syntax error" : $::numfields}]
                assert_typed $error $command h {*}$before {*}$args
            }
            foreach args {{fields x a} {fields "" a} {fields 9223372036854775808 a}} {
                assert_typed "-ERR value is not an integer or out of range" $command h {*}$before {*}$args
            }
        }
        foreach args {{fields 0 a 1} {fields 2 a 1} {fields 1 a 1 b 2} {fields 1 a 1 b} {fields 1 a 1 nx}} {
            assert_typed $::numfields hsetex h {*}$args
        }
        foreach command {httl hpttl hexpiretime hpexpiretime hpersist hgetdel hgetex hsetex} {
            if {$command ni {hgetex hsetex}} {assert_syntax_error $command h 1 a b c}
            assert_syntax_error $command h nosuch fields 1 a 1
        }
        foreach command {hgetex hsetex} {assert_typed $::numfields $command h 1 a b c}
        foreach command $::set_time {assert_typed $::numfields $command h 100 1 a b}
        assert_typed {* :-1 :-1} httl h fields 2 a b
    }

    test "a field may be called like a word of the syntax" {
        r del h
        replies {
            {hsetex h ex 100 fields 3 fields 1 ex 2 nx 3} :1
            {hgetex h fields 3 fields ex nx} {* {$1} {$2} {$3}}
            {hpersist h fields 2 fields fields} {* :1 :-1}
            {hpexpireat h 99999999999123 nx fields 2 fields nx} {* :1 :0}
            {hpexpiretime h fields 1 fields} {* :99999999999123}
            {hgetdel h fields 2 fields nx} {* {$1} {$3}}
            {hkeys h} {* {$ex}}
        }
    }

    test "a wrong number of arguments is refused" {
        arity_errors {
            {hexpire} {hexpire h 1 fields 1} {hpexpire h 1 fields 1} {hexpireat h 1 fields 1}\
                {hpexpireat h 1 fields 1} {hpersist h fields 1} {httl h fields 1} {hpttl h fields 1}
            {hexpiretime h fields 1} {hpexpiretime h fields 1} {hgetex h fields 1} {hsetex h fields 1 a}\
                {hgetdel h fields 1} {hgetdel h}
        }
    }

    test "a key of another type is refused" {
        r del k
        r set k v
        wrong_types {
            {hexpire k 1 fields 1 a} {hpexpire k 1 fields 1 a} {hexpireat k 1 fields 1 a} {hpexpireat k 1 fields 1 a}\
                {hpersist k fields 1 a} {httl k fields 1 a}
            {hpttl k fields 1 a} {hexpiretime k fields 1 a} {hpexpiretime k fields 1 a} {hgetex k fields 1 a}\
                {hgetex k persist fields 1 a} {hsetex k fields 1 a 1}
            {hsetex k nx fields 1 a 1} {hgetdel k fields 1 a}
        }
        assert_equal v [r get k]
    }

    test "a missing key has no fields, and is not made" {
        r del none
        foreach command $::set_time {assert_typed {* :-2 :-2} $command none 100 fields 2 a b}
        foreach command [concat $::ask_time hpersist] {assert_typed {* :-2 :-2} $command none fields 2 a b}
        replies {
            {hgetex none ex 100 fields 2 a b} {* nil$ nil$}
            {hgetex none persist fields 1 a} {* nil$}
            {hgetdel none fields 2 a b} {* nil$ nil$}
            {hsetex none fxx fields 1 a 1} :0
            {hsetex none xx fields 1 a 1} :0
            {hsetex none ex 0 fields 1 a 1} :1
            {exists none} :0
        }
    }

    test "RESP3: arrays with nulls" {
        r del h
        r hset h f v
        set c [new_client -resp 3]
        replies {
            {hgetex h fields 2 f none} {* {$v} _}
            {hexpire h 100 fields 2 f none} {* :1 :-2}
            {hpersist h fields 2 f none} {* :1 :-2}
            {httl h fields 2 f none} {* :-1 :-2}
            {hgetdel h fields 2 f none} {* {$v} _}
            {hgetdel h fields 1 f} {* _}
            {hsetex h fields 1 f v} :1
        } $c
    }

    # --- HGETEX, HSETEX, HGETDEL, HPERSIST ---------------------------------------------------------------------------

    test "HGETEX returns values, and sets or takes their time" {
        r del h
        r hset h a 1 b 2
        assert_typed {* {$1} nil$} hgetex h fields 2 a none
        assert_typed {* :-1} httl h fields 1 a
        foreach {options low high} {{EX 100} 95000 100000 {PX 100000} 95000 100000} {
            assert_typed {* {$1} nil$ {$2}} hgetex h {*}$options fields 3 a none b
            foreach ttl [r hpttl h fields 2 a b] {assert_range $ttl $low $high}
        }
        replies {
            {hgetex h EXAT 99999999999 fields 1 a} {* {$1}}
            {hpexpiretime h fields 1 a} {* :99999999999000}
            {hgetex h PXAT 99999999999123 fields 1 a} {* {$1}}
            {hpexpiretime h fields 1 a} {* :99999999999123}
            {hgetex h fields 1 a} {* {$1}}
            {hpexpiretime h fields 1 a} {* :99999999999123}
            {hgetex h PERSIST fields 2 a none} {* {$1} nil$}
            {httl h fields 1 a} {* :-1}
        }
    }

    test "HGETEX with a time in the past returns values and deletes them" {
        foreach options {{ex 0} {px 0} {exat 0} {exat 1} {pxat 0} {pxat 1}} {
            r del h
            r hset h a 1 b 2
            assert_typed {* {$1} nil$} hgetex h {*}$options fields 2 a none
            assert_typed {* {$b} {$2}} hgetall h
            assert_typed {* {$2} nil$} hgetex h {*}$options fields 2 b b
            assert_typed :0 exists h
        }
    }

    test "HSETEX sets fields, with a time, without, or keeping it" {
        r del h
        assert_typed :1 hsetex h EX 100 fields 2 a 1 b 2
        foreach ttl [r hpttl h fields 2 a b] {assert_range $ttl 95000 100000}
        replies {
            {hsetex h PXAT 99999999999123 fields 1 a 3} :1
            {hsetex h KEEPTTL fields 3 a 4 b 5 c 6} :1
            {hpexpiretime h fields 2 a c} {* :99999999999123 :-1}
            {hmget h a b c} {* {$4} {$5} {$6}}
            {hsetex h EXAT 99999999999 fields 1 a 7} :1
            {hpexpiretime h fields 1 a} {* :99999999999000}
            {hsetex h fields 1 a 8} :1
            {hpexpiretime h fields 1 a} {* :-1}
            {hget h a} {$8}
        }
        assert_typed :1 hsetex h PX 100000 fields 1 a 9
        assert_range [lindex [r hpttl h fields 1 a] 0] 95000 100000
    }

    test "HSETEX FNX and FXX look at all fields before one is set" {
        r del h
        r hset h a 1 b 2
        replies {
            {hsetex h FNX fields 2 c 1 a 9} :0
            {hsetex h FXX fields 2 a 9 c 9} :0
            {hgetall h} {* {$a} {$1} {$b} {$2}}
            {hsetex h FNX ex 100 fields 1 c 3} :1
            {hsetex h ex 100 fxx fields 2 a 4 b 5} :1
            {hmget h a b c} {* {$4} {$5} {$3}}
        }
    }

    test "HSETEX NX and XX look at the key" {
        r del h
        replies {
            {hsetex h XX fields 1 a 1} :0
            {exists h} :0
            {hsetex h NX fields 1 a 1} :1
            {hsetex h NX fields 1 a 2} :0
            {hsetex h NX FXX fields 1 a 2} :0
            {hsetex h XX FNX fields 1 a 2} :0
            {hsetex h XX FXX fields 1 a 2} :1
            {hsetex h XX FNX px 100000 fields 1 b 2} :1
            {hmget h a b} {* {$2} {$2}}
        }
    }

    test "HSETEX with a time in the past deletes the fields" {
        foreach options {{ex 0} {px 0} {exat 1} {pxat 1} {exat 0} {pxat 0}} {
            r del h
            r hset h a 1 b 2
            assert_typed :0 hsetex h fnx {*}$options fields 2 a 9 c 9
            assert_typed :1 hsetex h {*}$options fields 2 a 9 c 9
            assert_typed {* {$b} {$2}} hgetall h
            assert_typed :1 hsetex h {*}$options fxx fields 1 b 9
            assert_typed :0 exists h
        }
    }

    test "HGETEX and HSETEX: options that exclude each other, bad times" {
        r del h
        r hset h f v
        foreach {command rest} {hgetex {fields 1 f} hsetex {fields 1 f w}} {
            foreach options {{ex 1 px 1} {ex 10 exat 99999999999} {px 1 pxat 99999999999123} {ex} {px} {nosuch}} {
                assert_syntax_error $command h {*}$options {*}$rest
            }
            foreach option {ex px exat pxat} {
                foreach bad {x "" 1.5 9223372036854775808} {
                    assert_typed "-ERR value is not an integer or out of range" $command h $option $bad {*}$rest
                }
                assert_typed "-ERR invalid expire time in '$command' command" $command h $option -1 {*}$rest
            }
            foreach {option bad} {ex 9223372036854775807 ex 9223372036854776 px 9223372036854775807 exat\
                9223372036854776} {
                assert_typed "-ERR invalid expire time in '$command' command" $command h $option $bad {*}$rest
            }
        }
        foreach options {{nx xx} {fnx fxx} {xx nx} {fxx fnx} {keepttl ex 1} {ex 1 keepttl} {persist}} {
            assert_syntax_error hsetex h {*}$options fields 1 f w
        }
        foreach options {{persist ex 1} {ex 1 persist} {keepttl} {nx} {fnx}} {
            assert_syntax_error hgetex h {*}$options fields 1 f
        }
        assert_typed {* {$f} {$v}} hgetall h
        assert_typed {* :-1} httl h fields 1 f
    }

    test "HGETDEL returns values and deletes them, and the key with the last" {
        r del h
        r hset h a 1 b 2 c 3
        replies {
            {hgetdel h fields 2 none none2} {* nil$ nil$}
            {hgetdel h fields 2 a none} {* {$1} nil$}
            {hlen h} :2
            {hexpire h 100 fields 1 b} {* :1}
            {hgetdel h fields 2 b c} {* {$2} {$3}}
            {exists h} :0
        }
        set big [string repeat v 100000]
        r hset h a $big
        assert_equal [list $big] [r hgetdel h fields 1 a]
        assert_typed :0 exists h
    }

    # --- Expiry of fields after other commands -----------------------------------------------------------------------

    test "HSET, HMSET drop the time of the fields they set; HINCRBY and HINCRBYFLOAT keep it" {
        r del h
        r hset h a 1 b 2 c 3 d 4 e 5
        r hpexpireat h $::far fields 5 a b c d e
        r hset h a 9
        r hmset h b 9
        r hsetnx h c 9
        r hincrby h d 1
        r hincrbyfloat h e 0.5
        assert_equal [list -1 -1 $::far $::far $::far] [r hpexpiretime h fields 5 a b c d e]
        assert_equal {9 9 3 5 5.5} [r hmget h a b c d e]
        r hincrby h d [expr {2**60}]
        r hincrbyfloat h e 0.00000000001
        assert_equal [list $::far $::far] [r hpexpiretime h fields 2 d e]
        r hdel h d
        r hset h d 1
        assert_equal -1 [r hpexpiretime h fields 1 d]
    }

    test "RENAME, COPY, MOVE and SWAPDB take the times along" {
        r flushall
        r hset h a 1 b 2
        r hpexpireat h $::far fields 1 a
        r rename h g
        r copy g c
        r move c 3
        set other [new_client -db 3]
        foreach {client key} [list r g $other c] {
            assert_equal [list $::far -1] [$client hpexpiretime $key fields 2 a b]
            assert_equal {a 1 b 2} [concat {*}[lsort [lmap {f v} [$client hgetall $key] {list $f $v}]]]
        }
        r hpexpire g 1 fields 1 a
        r swapdb 0 3
        wait_for_condition 3000 {[$other hlen g] == 1}
        assert_equal [list $::far -1] [r hpexpiretime c fields 2 a b]
    }

    test "a key's own time and its fields' times are two things" {
        r del h
        r hsetex h px 1000000 fields 1 a 1
        r pexpireat h $::far
        assert_typed :$::far pexpiretime h
        assert_range [lindex [r hpttl h fields 1 a] 0] 900000 1000000
        r persist h
        assert_range [lindex [r hpttl h fields 1 a] 0] 900000 1000000
        r hpersist h fields 1 a
        r expire h 100
        assert_typed {* :-1} httl h fields 1 a
        r hsetex h ex 100 fields 1 a 2
        r pexpire h 1
        wait_for_condition 2000 {![r exists h]}
        assert_typed {* :-2} httl h fields 1 a
    }

    # --- Expiring ----------------------------------------------------------------------------------------------------

    test "what has expired is seen by no command, whether or not it has been deleted" {
        with_debug_active_expire_off {
            make_expired h {a b}
            replies {
                {hget h a} nil$
                {hmget h a b stays} {* nil$ nil$ {$s}}
                {hexists h a} :0
                {hstrlen h a} :0
                {hgetall h} {* {$stays} {$s}}
                {hkeys h} {* {$stays}}
                {hvals h} {* {$s}}
                {hrandfield h} {$stays}
                {hrandfield h 5} {* {$stays}}
                {hrandfield h 5 withvalues} {* {$stays} {$s}}
                {hrandfield h -2} {* {$stays} {$stays}}
                {hscan h 0 count 100} {* {$0} {* {$stays} {$s}}}
                {hscan h 0 count 100 novalues} {* {$0} {* {$stays}}}
                {httl h fields 2 a stays} {* :-2 :-1}
                {hpexpiretime h fields 1 a} {* :-2}
                {hlen h} :3
            }
            r del list
            r rpush list stays a
            make_expired w_a {f} {}
            r hset w_stays f 1
            assert_typed {* {$1} nil$} sort list by nosort get w_*->f
            assert_typed {* {$a} {$stays}} sort list by w_*->f
        }
    }

    test "what has expired is missing to commands that write, and stays unless they set it" {
        with_debug_active_expire_off {
            foreach {command reply left} {
                {hexpire h 100 fields 1 a} {* :-2} {}           {hpersist h fields 1 a} {* :-2}\
                    {}        {hdel h a} :0 {}
                {hsetnx h a 9} :1 {a 9}                         {hset h a 9} :1\
                    {a 9}                     {hincrby h a 3} :3 {a 3}
                {hincrbyfloat h a 3} {$3} {a 3}                 {hgetex h fields 1 a} {* nil$}\
                    {}         {hgetex h persist fields 1 a} {* nil$} {}
                {hgetex h ex 100 fields 1 a} {* nil$} {}        {hgetdel h fields 1 a} {* nil$}\
                    {}        {hsetex h fnx fields 1 a 9} :1 {a 9}
                {hsetex h fxx fields 1 a 9} :0 {}               {hsetex h keepttl fields 1 a 9} :1 {a 9}
            } {
                make_expired h {a b}
                assert_typed $reply {*}$command
                assert_equal [lsort [concat stays s $left]] [lsort [r hgetall h]] $command
                assert_equal 3 [r hlen h] $command
            }
            make_expired h {a b}
            assert_typed :1 hsetex h ex 0 fields 1 a 9
            assert_equal {stays s} [r hgetall h]
            assert_equal 2 [r hlen h]
            assert_typed {* :-1} httl h fields 1 stays
        }
    }

    test "a hash of expired fields is empty, and stays until they are deleted" {
        with_debug_active_expire_off {
            make_expired h {a b} {}
            replies {
                {hgetall h} *
                {hrandfield h} nil$
                {hrandfield h -3} *
                {hrandfield h 3 withvalues} *
                {hscan h 0 count 100} {* {$0} *}
                {exists h} :1
                {hdel h a} :0
                {exists h} :1
                {hgetdel h fields 1 b} {* nil$}
                {exists h} :1
                {hlen h} :2
            }
        }
        wait_for_condition 5000 {![r exists h] && ![r exists w_a]}
    }

    test "COPY leaves out expired fields" {
        with_debug_active_expire_off {
            make_expired h {a b}
            r hsetex h ex 1000 fields 1 later l
            assert_typed :1 copy h c replace
            assert_typed :2 hlen c
            assert_typed :4 hlen h
            assert_same_elements {stays s later l} [r hgetall c]
            assert_range [r httl c fields 1 later] 990 1000
        }
    }

    test "the fields that COPY omits are also deleted where it is propagated" -needs {ours 1} {
        set follower [new_follower]
        with_debug_active_expire_off {
            make_expired h {a}
            heard $follower
            r copy h c replace
            assert_equal {MULTI {copy h c replace} {HDEL c a} EXEC} [heard $follower]
            make_expired only {a} {}
            heard $follower
            r copy only c replace
            r copy h c db 9 replace
            assert_equal {{copy only c replace} MULTI {copy h c db 9 replace} {HDEL c a} EXEC} [heard $follower]
            r del h only c
        }
        r hset plain f v
        heard $follower
        r copy plain c replace
        assert_equal {{copy plain c replace}} [heard $follower]
    }

    test "a command that sets expired fields sends one hexpired event, and counts them" {
        with_debug_active_expire_off {
            set listener [new_listener]
            foreach {command event} {{hset h a 1 b 2} hset {hsetnx h a 1} hset {hincrby h a 1} hincrby\
                {hincrbyfloat h a 1} hincrbyfloat
                                     {hsetex h fields 2 a 1 b 2} hset {hsetex h keepttl fields 2 a 1 b 2} hset} {
                make_expired h {a b c}
                set before [info_field stats expired_fields]
                r config set notify-keyspace-events EA
                r {*}$command
                r config set notify-keyspace-events ""
                assert_equal [list {hexpired h} "$event h"] [heard $listener] $command
                assert_equal [expr {$before + ("b" in $command ? 2 : 1)}] [info_field stats expired_fields] $command
            }
            $listener -close
        }
    }

    test "HRANDFIELD chooses fairly among what has not expired" {
        with_debug_active_expire_off {
            set live [lmap i {0 1 2 3 4} {string cat live$i}]
            make_expired h [lmap i [split [string repeat . 199] .] {string cat x[incr ::made]}] \
                [concat {*}[lmap f $live {list $f v}]]
            foreach count {1 3 4 5 -1 10} {
                set seen {}
                for {set i 0} {$i < 300 && [dict size $seen] < 5} {incr i} {
                    foreach f [r hrandfield h $count] {dict incr seen $f}
                }
                assert_same_elements $live [dict keys $seen]
            }
            set cursor 0
            set seen {}
            while 1 {
                lassign [r hscan h $cursor count 7] cursor found
                lappend seen {*}[dict keys $found]
                if {$cursor == 0} break
            }
            assert_same_elements $live [lsort -unique $seen]
        }
    }

    test "a field lives until its time" {
        r del h
        r hsetex h px 1000 fields 1 a 1
        assert_equal 1 [r hget h a]
        wait_for_condition 3000 {[r hget h a] eq ""}
        set at [expr {[clock milliseconds] + 120}]
        r hsetex h pxat $at fields 1 a 1
        while {[r hget h a] ne ""} {after 1}
        assert_morethan [clock milliseconds] [expr {$at - 1}]
    }

    test "fields are deleted without anybody touching them, in every database" {
        r flushall
        r config resetstat
        foreach db {0 3 15} {
            set c [new_client -db $db]
            for {set i 0} {$i < 20} {incr i} {
                $c hsetex h:$i px 20 fields 3 a 1 b 2 c 3
                if {$i % 2} {$c hset h:$i stays s}
            }
            $c -close
        }
        wait_for_condition 5000 {[info_field stats expired_fields] == 180}
        foreach db {0 3 15} {
            assert_match "*db$db:keys=10,expires=0,avg_ttl=0,keys_with_volatile_items=0\r\n*" [r info keyspace]
            set c [new_client -db $db]
            assert_equal {stays s} [$c hgetall h:1]
            assert_equal 1 [$c hlen h:19]
            $c -close
        }
        assert_equal 0 [info_field stats expired_keys]
    }

    test "a large hash expires soon after its time while the server keeps serving" -timeout 90 {
        r flushall
        set c [new_client -deferring 1]
        for {set i 0} {$i < 400} {incr i} {
            set pairs {}
            for {set j 0} {$j < 100} {incr j} {lappend pairs f:$i:$j v}
            $c hsetex h px 1500 fields 100 {*}$pairs
        }
        for {set i 0} {$i < 400} {incr i} {$c -read}
        $c -close
        set worst 0
        wait_for_condition 20000 {
            [set t [clock milliseconds]; r ping; set worst [expr {max($worst, [clock milliseconds] - $t)}]; r\
                exists h] == 0
        }
        assert_lessthan $worst 2000
    }

    test "a transaction sees one time" {
        r del h
        r hsetex h px 40 fields 1 a 1
        r multi
        r hget h a
        r debug sleep 0.1
        r hget h a
        r hpttl h fields 1 a
        lassign [r exec] first ok second ttl
        assert_equal $first $second
        if {$first eq "1"} {assert_morethan $ttl -1}
        wait_for_condition 2000 {[r hget h a] eq ""}
    }

    # --- Notifications and propagation -------------------------------------------------------------------------------

    test "expired fields are notified and propagated, and the key with the last one" {
        r flushall
        set follower [new_follower]
        set listener [new_listener]
        r config set notify-keyspace-events EA
        r hset h stays s
        r hsetex h pxat [set at [expr {[clock milliseconds] + 30}]] fields 2 a 1 b 2
        r hsetex whole pxat $at fields 1 a 1
        wait_for_condition 5000 {![r exists whole] && [r hlen h] == 1}
        set events [heard $listener]
        assert_equal {{hset h} {hset h} {hexpire h} {hset whole} {hexpire whole}} [lrange $events 0 4]
        assert_same_elements {{hexpired h} {hexpired whole} {del whole}} [lrange $events 5 end]
        assert_morethan [lsearch $events {del whole}] [lsearch $events {hexpired whole}]
        set repeated [heard $follower]
        assert_equal [list {hset h stays s} "hsetex h pxat $at fields 2 a 1 b 2" "hsetex whole pxat $at fields 1 a 1"] \
            [lrange $repeated 0 2]
        assert_same_elements {MULTI {HDEL h a b} {HDEL whole a} {UNLINK whole} EXEC} \
            [lmap c [lrange $repeated 3 end] {concat [lrange $c 0 1] [lsort [lrange $c 2 end]]}]
        r config set notify-keyspace-events ""
    }

    test "writes to a hash with expiring fields are propagated as values with absolute times" {
        set follower [new_follower]
        with_debug_active_expire_off {
            make_expired h {a b c d}
            heard $follower
            r hincrby h a 7
            r hset h b 1 c 2
            r hsetnx h d 4
            assert_equal {{HSET h a 7} {hset h b 1 c 2} {HSET h d 4}} [heard $follower]
            make_expired h {a b}
            heard $follower
            r hsetex h keepttl fields 2 a 1 b 2
            assert_equal {MULTI {HDEL h a b} {hsetex h KEEPTTL fields 2 a 1 b 2} EXEC} [heard $follower]
            r hsetex h pxat 33177117420000 fields 1 f 1
            r hincrbyfloat h f 0.5
            assert_equal {HSETEX h PXAT 33177117420000 FIELDS 1 f 1.5} [lindex [heard $follower] end]
            r hset plain f 1
            heard $follower
            r hincrby plain f 1
            r hsetnx plain g 1
            assert_equal {{hincrby plain f 1} {hsetnx plain g 1}} [heard $follower]
        }
    }

    test "a client that watches a hash is notified of changes of its fields" {
        foreach {change result} {
            {hexpire h 100 fields 1 a} {}   {hpersist h fields 1 b} {}   {hgetex h ex 10 fields 1 a}\
                {}   {hgetdel h fields 1 a} {}   {hsetex h fields 1 a 1} {}
            {hexpire h 0 fields 1 a} {}     {hgetex h fields 1 a} PONG   {httl h fields 1 a}\
                PONG         {hexpire h 100 gt fields 1 a} PONG   {hpersist h fields 1 a} PONG
        } {
            r del h
            r hset h a 1 b 2
            r hexpire h 1000 fields 1 b
            set c [new_client]
            r watch h
            $c {*}$change
            r multi
            r ping
            assert_equal $result [lindex [r exec] 0] $change
            $c -close
        }
    }

    # --- Encodings and statistics ------------------------------------------------------------------------------------

    test "INFO counts keys with fields that expire" {
        r flushall
        r set s v
        assert_match "*db0:keys=1,expires=0,avg_ttl=0,keys_with_volatile_items=0\r\n*" [r info keyspace]
        r hsetex a ex 1000 fields 2 f v g v
        r hsetex b ex 1000 fields 2 f v g v
        r hset c f v
        assert_match "*db0:keys=4,expires=0,avg_ttl=0,keys_with_volatile_items=2\r\n*" [r info keyspace]
        r hdel a f
        r hpersist b fields 2 f g
        assert_match "*keys_with_volatile_items=1\r\n*" [r info keyspace]
        r set a string
        assert_match "*keys_with_volatile_items=0\r\n*" [r info keyspace]
        r hsetex a2 ex 1000 fields 1 f v
        r rename a2 s
        assert_match "*db0:keys=4,*,keys_with_volatile_items=1\r\n*" [r info keyspace]
        r del s
        assert_match "*keys_with_volatile_items=0\r\n*" [r info keyspace]
    }

    test "MEMORY USAGE counts times, and DEBUG DIGEST does not" {
        r flushall
        r config set hash-max-listpack-entries 0
        r hset h a 1 b 2
        r config set hash-max-listpack-entries 512
        set plain [r memory usage h]
        set digest [r debug digest-value h]
        r hpexpireat h $::far fields 1 a
        assert_morethan [r memory usage h] $plain
        assert_equal $digest [r debug digest-value h]
        r hpersist h fields 1 a
        assert_equal $plain [r memory usage h]
        assert_equal $digest [r debug digest-value h]
        assert_match "*table size*" [r debug htstats-key h]
        r hpexpireat h $::far fields 1 a
        assert_match "*table size*" [r debug htstats-key h]
    }

    # --- DUMP and RESTORE --------------------------------------------------------------------------------------------

    test "DUMP of a hash whose fields expire says so, byte by byte" {
        r flushall
        r hsetex h pxat 99999999999123 fields 1 f hello
        assert_equal "\x16\x01\x01f\x05hello\x93\x3c\x7a\x10\xf3\x5a\x00\x00\x50\x00" [string range [r dump h] 0 end-8]
        r hset h g 7
        set payload [r dump h]
        assert_equal "\x16\x02" [string range $payload 0 1]
        assert_equal "\x50\x00" [string range $payload end-9 end-8]
        foreach part [list "\x01f\x05hello\x93\x3c\x7a\x10\xf3\x5a\x00\x00" \
            "\x01g\xc0\x07\xff\xff\xff\xff\xff\xff\xff\xff"] {
            assert_morethan [string first $part $payload] 1
        }
        r hpersist h fields 1 f
        set payload [r dump h]
        assert_equal "\x04\x02" [string range $payload 0 1]
        assert_equal "\x0b\x00" [string range $payload end-9 end-8]
    }

    test "RESTORE brings the times back" {
        r flushall
        r hset h a 1 b 2 c [string repeat v 3000] [string repeat n 300] 4
        r hpexpireat h $::far fields 2 a c
        set digest [r debug digest-value h]
        set payload [r dump h]
        assert_equal OK [r restore g 0 $payload]
        assert_equal $digest [r debug digest-value g]
        assert_equal [list $::far -1 $::far -1] [r hpexpiretime g fields 4 a b c [string repeat n 300]]
        assert_encoding hashtable g
        r hpersist h fields 2 a c
        assert_equal OK [r restore g 0 [r dump h] replace]
        assert_match "*keys_with_volatile_items=0\r\n*" [r info keyspace]
    }

    test "DEBUG RELOAD keeps the times" {
        r flushall
        r hset h a 1 b 2
        r hpexpireat h $::far fields 1 a
        set digest [r debug digest]
        r debug reload
        assert_equal $digest [r debug digest]
        assert_equal [list $::far -1] [r hpexpiretime h fields 2 a b]
        assert_match "*keys_with_volatile_items=1\r\n*" [r info keyspace]
        r hpexpire h 1 fields 1 a
        wait_for_condition 3000 {[r hlen h] == 1}
    }

    test "RESTORE of expired fields: they are not visible, and the deletion is propagated" {
        r flushall
        with_debug_active_expire_off {
            make_expired h {a b}
            set payload [r dump h]
            make_expired h {a} {}
            set whole [r dump h]
            r del h
        }
        set follower [new_follower]
        r restore g 0 $payload
        r restore whole 0 $whole
        assert_equal {stays s} [r hgetall g]
        wait_for_condition 5000 {[r hlen g] == 1 && ![r exists whole]}
        assert_same_elements {MULTI {HDEL g a b} {HDEL whole a} {UNLINK whole} EXEC} \
            [lmap c [lrange [heard $follower] 2 end] {concat [lrange $c 0 1] [lsort [lrange $c 2 end]]}]
    }

    test "RESTORE refuses damaged hashes with times" {
        r flushall
        r debug set-skip-checksum-validation 1
        at_test_end {r debug set-skip-checksum-validation 0}
        foreach {name bytes} {
            "no fields" "\x16\x00"
            "a count and nothing" "\x16\x01"
            "no time" "\x16\x01\x01f\x01v"
            "half a time" "\x16\x01\x01f\x01v\x00\x00\x00\x00"
            "a negative time" "\x16\x01\x01f\x01v\xfe\xff\xff\xff\xff\xff\xff\xff"
            "a field twice" "\x16\x02\x01f\x01v\x00\x00\x00\x00\x00\x00\x00\x7f\x01f\x01w\xff\xff\xff\xff\xff\xff\xff\xff"
            "too large a count" "\x16\x80\x7f\xff\xff\xff\x01f\x01v\xff\xff\xff\xff\xff\xff\xff\xff"
        } {
            assert_typed "-ERR Bad data format" restore bad 0 "$bytes\x50\x00\x00\x00\x00\x00\x00\x00\x00\x00"
            assert_typed :0 exists bad
        }
        assert_typed +OK restore good 0 \
            "\x16\x01\x01f\x01v\xff\xff\xff\xff\xff\xff\xff\xff\x50\x00\x00\x00\x00\x00\x00\x00\x00\x00"
        assert_typed {* :-1} httl good fields 1 f
    }

    # --- Memory ------------------------------------------------------------------------------------------------------

    test "with maxmemory reached HSETEX is refused, and times can still be set and taken" {
        r flushall
        r hset h a 1 b 2 c 3
        with_config {maxmemory 1 maxmemory-policy noeviction} {
            assert_error_like "OOM*" {r hsetex h fields 1 d 1}
            replies {
                {hexpire h 100 fields 1 a} {* :1}
                {hgetex h persist fields 1 a} {* {$1}}
                {hpersist h fields 1 a} {* :-1}
                {hexpire h 0 fields 1 b} {* :2}
                {hgetdel h fields 1 a} {* {$1}}
            }
        }
        assert_equal {c 3} [r hgetall h]
    }

    test "volatile policies choose among keys with a time of their own" {
        r flushall
        r hsetex h ex 1000 fields 1 a 1
        with_config {maxmemory 1 maxmemory-policy volatile-lru} {assert_error_like "OOM*" {r set k v}}
        with_config {maxmemory 1 maxmemory-policy allkeys-lru} {catch {r set k v}}
        assert_typed :0 exists h
        assert_not_match "*keys_with_volatile_items=1*" [r info keyspace]
    }

    test "random commands on fields agree with a model" {
        r flushall
        set times {}
        for {set i 0} {$i < 1500} {incr i} {
            set f f[randint 30]
            set has [dict exists $times $f]
            set at [expr {$::far + [randint 100000]}]
            switch [randint 8] {
                0 {
                    r hset h $f v
                    dict set times $f -1
                }
                1 {
                    assert_equal [expr {$has ? 1 : -2}] [r hpexpireat h $at fields 1 $f]
                    if {$has} {dict set times $f $at}
                }
                2 {
                    assert_equal [expr {!$has ? -2 : [dict get $times $f] == -1 ? -1 : 1}] [r hpersist h fields 1 $f]
                    if {$has} {dict set times $f -1}
                }
                3 {
                    r hsetex h pxat $at fields 1 $f w
                    dict set times $f $at
                }
                4 {
                    r hsetex h keepttl fields 1 $f [string repeat x [randint 2000]]
                    if {!$has} {dict set times $f -1}
                }
                5 {
                    set now [expr {$has ? [dict get $times $f] : 0}]
                    assert_equal [expr {!$has ? -2 : $now != -1 && $at > $now}] [r hpexpireat h $at gt fields 1 $f]
                    if {$has && $now != -1 && $at > $now} {dict set times $f $at}
                }
                6 {
                    assert_equal $has [r hdel h $f]
                    dict unset times $f
                }
                7 {
                    assert_equal [expr {$has ? [dict get $times $f] : -2}] [r hpexpiretime h fields 1 $f]
                    if {$i % 100 == 7 && [dict size $times]} {
                        r restore copy 0 [r dump h] replace
                        r rename copy h
                    }
                }
            }
        }
        dict for {f at} $times {assert_equal $at [r hpexpiretime h fields 1 $f]}
        assert_equal [dict size $times] [r hlen h]
        r del h ;# leak checkers do not find unaligned pointers, such as that of a field to a large value
    }

    test "string commands replace a hash with fields that expire" {
        foreach value [list 17 short [string repeat long 1000]] {
            foreach command {
                {set h $value} {setex h 100 $value} {psetex h 100000 $value} {mset h $value} {getset other $value}\
                    {set h $value keepttl}
                {msetex 1 h $value} {bitop or h source}
            } {
                if {[unmet_need [list command [lindex $command 0]]] ne ""} continue
                foreach ttl {0 100} {
                    r del h other
                    r set source $value
                    for {set i 0} {$i < 40} {incr i} {r hset h f$i v$i}
                    r hexpire h 1000 fields 3 f1 f2 f3
                    if {$ttl} {r expire h $ttl}
                    # The entry gets a new value and has no fields any more.
                    r {*}[subst $command]
                    if {[lindex $command 0] ne "getset"} {assert_equal $value [r get h]}
                    r del h
                    r hset h a b
                    r hexpire h 1000 fields 1 a
                }
            }
        }
        assert_equal {} [r get source_of_nothing]
        r flushall
    }

    # Searching an unexpired field for each draw would take hours.
    test "HRANDFIELD draws many times from a hash of which nearly all fields have expired" {
        r debug set-active-expire 0
        r del h
        set fields {}
        for {set i 0} {$i < 100000} {incr i} {
            lappend fields f$i v
            if {[llength $fields] == 2000} {
                r hsetex h px 1 fields 1000 {*}$fields
                set fields {}
            }
        }
        r hset h live:1 a live:2 b
        wait_for_condition 5000 {[r hexists h f99999] == 0 && [r hexists h f0] == 0}
        set drawn [r hrandfield h -200000]
        assert_equal 200000 [llength $drawn]
        assert_equal {live:1 live:2} [lsort -unique $drawn]
        # Both fields occur: the probability of only one is 1 in 2^199999.
        assert_equal {a b live:1 live:2} [lsort -unique [r hrandfield h -1000 withvalues]]
        r debug set-active-expire 1
        r flushall
    }

    test "DEBUG DIGEST-VALUE of a hash counts neither expiry nor expired fields" {
        with_debug_active_expire_off {
            make_expired h {a b}
            r hset plain stays s
            assert_equal [r debug digest-value plain] [r debug digest-value h]
            r hexpire h 1000 fields 1 stays
            assert_equal [r debug digest-value plain] [r debug digest-value h]
        }
    }

    test "HSETEX counts a field that is named twice once when it chooses an encoding" {
        r del h
        with_config {hash-max-listpack-entries 2} {
            assert_typed :1 hsetex h fields 3 a 1 a 2 b 3
            assert_encoding listpack h
            assert_typed :1 hsetex h fields 1 c 4
            assert_encoding hashtable h
        }
    }
}

start_server {tags {hash hash-fields}} {
    if {[unmet_need {command hexpire}] ne ""} return

    test "INFO shows the share of hashes in which the cycle found expired fields" {
        proc share {} {return [info_field stats expired_keys_with_volatile_items_stale_perc]}
        assert_equal 0.00 [share]
        for {set i 0} {$i < 50} {incr i} {r hsetex h:$i px 1 fields 2 f v g w}
        wait_for_condition 10000 {[r dbsize] == 0 && [share] > 0}
        assert_lessthan [share] 100.01
    }
}

start_server {tags {hash hash-fields} overrides {appendonly yes}} {
    if {[unmet_need {command hexpire}] ne ""} return

    # The file is executed as replicas execute the stream: without checking expiry.
    test "what expired fields decide in COPY and SORT is the same in the append-only file" -needs {ours 1} {
        with_debug_active_expire_off {
            make_expired h {a}
            r set c string
            r copy h c replace
            r copy h c db 3
            # The expired field keeps the original alive.
            r hdel h stays
            r rename h renamed
            foreach id {1 2 3} {r hset h_$id f [expr {4 - $id}]}
            r hpexpire h_1 1 fields 1 f
            wait_for_condition 2000 {[r hget h_1 f] eq ""}
            r rpush ids 1 2 3
            r sort ids by h_*->f store sorted
            r sort ids by nosort get h_*->f store fields
            r del long
            r rpush long {*}[lrepeat 700 1]
            r sort long by nosort get h_*->f get # store many
            set before {
                [r exists renamed] [r hlen c] [r lrange sorted 0 -1] [r lrange fields 0 -1]
                [llength [r lrange many 0 -1]] [lsort -unique [r lrange many 0 -1]]
            }
            set expected [subst $before]
            r debug loadaof
            assert_equal $expected [subst $before]
            r select 3
            assert_equal 1 [r hlen c]
            r select 0
        }
    }
}
