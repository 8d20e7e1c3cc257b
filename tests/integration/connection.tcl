# Commands on the connection itself.
# seconds: 17

# The line of CLIENT LIST of that client, as a dictionary.
proc client_line {id} {
    foreach l [split [string trim [r client list]] \n] {
        set f [client_fields $l]
        if {[dict get $f id] == $id} {return $f}
    }
    return {}
}

start_server {tags {connection}} {
    # --- PING, ECHO, SELECT, QUIT, RESET ---------------------------------------------

    test "PING and ECHO" {
        replies {
            {ping} +PONG
            {ping hello} {$hello}
            {ping ""} {$}
            {echo hello} {$hello}
            {echo ""} {$}
        }
        arity_errors {{ping a b} echo {echo a b}}
    }

    test "SELECT changes the database of this connection only" {
        set c [new_client]
        r flushall
        replies {
            {select 3} +OK
            {set a 3} +OK
            {select 0} +OK
            {exists a} :0
            {select 16} "-ERR DB index is out of range"
            {select -1} "-ERR DB index is out of range"
            {select 2147483648} "-ERR value is out of range, value must between -2147483648 and 2147483647"
            {select x} "-ERR value is not an integer or out of range"
            {select 1.5} "-ERR value is not an integer or out of range"
            {select ""} "-ERR value is not an integer or out of range"
        }
        assert_match {*db=0*} [$c client info]
        arity_errors {select {select 0 1}}
    }

    # Returns the time at which each of these clients gets its reply.
    proc answers_now {args} {
        set times {}
        foreach c $args {if {[$c -available] ne ""} {lappend times [clock milliseconds]}}
        return $times
    }
    # Two clients are served in one turn of the loop, in any order, because their requests arrive while a third client's
    # request runs. Returns whether one of them gets its reply long before the other; "" if the machine was too slow.
    proc replies_apart {} {
        set clients [list [new_client] [new_client] [new_client]]
        foreach c $clients {$c ping}
        lassign $clients busy one other
        set begun [clock milliseconds]
        $busy -send debug sleep 1.5
        after 100
        $one -send debug sleep 0.8
        $other -send debug sleep 0.8
        set sent [clock milliseconds]
        set answered {}
        wait_for_condition 20000 {[llength [lappend answered {*}[answers_now $one $other]]] >= 2}
        foreach c $clients {$c -close}
        if {$sent - $begun > 500} {return ""}
        return [expr {[lindex $answered 1] - [lindex $answered 0] > 400}]
    }
    foreach {when apart} {yes 1 no 0} {
        test "immediate-reply $when: a reply [expr {$apart ? {leaves before} : {waits until}}] the next is served" \
            -needs {config immediate-reply} {
            r config set immediate-reply $when
            for {set i 0} {$i < 10 && [set got [replies_apart]] eq ""} {incr i} {}
            assert_equal $apart $got
            r config set immediate-reply auto
        }
    }

    test "immediate-reply knows auto, yes and no" -needs {config immediate-reply} {
        assert_equal {immediate-reply auto} [r config get immediate-reply]
        assert_error "ERR CONFIG SET failed (possibly related to argument 'immediate-reply') - argument(s) must be one\
            of the following: auto, yes, no" {r config set immediate-reply late}
    }

    test "QUIT answers and closes, what follows is not executed" {
        r set q 0
        set c [new_client]
        $c -write "QUIT\r\nSET q 1\r\n"
        assert_equal +OK [$c -readline]
        assert_closed $c
        assert_equal 0 [r get q]
        set c [new_client]
        assert_equal OK [$c quit whatever]
        assert_closed $c
    }

    test "RESET brings a connection back to its first state" {
        set c [new_client -resp 3]
        $c select 5
        $c client setname foo
        $c client reply on
        $c client no-evict on
        $c client no-touch on
        assert_reply $c +RESET reset
        assert_reply $c nil$ client getname
        set f [client_fields [$c client info]]
        assert_equal 0 [dict get $f db]
        assert_equal 2 [dict get $f resp]
        assert_equal "" [dict get $f name]
        assert_equal N [dict get $f flags]
        arity_errors {{reset x}}
    }

    # --- HELLO, AUTH --------------------------------------------------------------------

    test "HELLO describes the server and keeps the protocol if none is given" {
        set c [new_client]
        set h [$c hello]
        assert_equal {server version proto id mode role modules} [dict keys $h]
        assert_equal valkey [dict get $h server]
        assert_equal 2 [dict get $h proto]
        assert_equal standalone [dict get $h mode]
        assert_equal master [dict get $h role]
        assert_equal [$c client id] [dict get $h id]
        assert_equal {{name lua ver 1 path lua args {}}} [dict get $h modules]
    }

    test "HELLO switches between RESP2 and RESP3" {
        set c [new_client]
        assert_match {% {$server} {$valkey} {$version} * {$proto} :3 {$id} :* {$mode} {$standalone} {$role} {$master}\
            {$modules} {\* {% {$name} {$lua} {$ver} :1 {$path} {$lua} {$args} \*}}} [$c -typed hello 3]
        assert_reply $c _ get none
        assert_match {% {$server} *} [$c -typed hello]
        assert_equal 3 [dict get [client_fields [$c client info]] resp]
        assert_match {\* {$server} {$valkey} *} [$c -typed hello 2]
        assert_reply $c nil$ get none
    }

    test "HELLO refuses other protocols" {
        set c [new_client]
        replies {
            {hello 1} "-NOPROTO unsupported protocol version"
            {hello 4} "-NOPROTO unsupported protocol version"
            {hello 0} "-NOPROTO unsupported protocol version"
            {hello -3} "-NOPROTO unsupported protocol version"
            {hello x} "-ERR Protocol version is not an integer or out of range"
            {hello ""} "-ERR Protocol version is not an integer or out of range"
            {hello auth a b} "-ERR Protocol version is not an integer or out of range"
        } $c
    }

    test "HELLO SETNAME and AUTH" {
        set c [new_client]
        $c hello 3 setname first
        assert_equal first [$c client getname]
        $c hello 3 auth default "" setname second
        assert_equal second [$c client getname]
        $c hello 2 SETNAME third AUTH default any
        assert_equal third [$c client getname]
        replies {
            {hello 2 auth} "-ERR Syntax error in HELLO option 'auth'"
            {hello 2 auth a} "-ERR Syntax error in HELLO option 'auth'"
            {hello 2 setname} "-ERR Syntax error in HELLO option 'setname'"
            {hello 2 foo} "-ERR Syntax error in HELLO option 'foo'"
            {hello 2 setname "a b"} "-ERR Client names cannot contain spaces, newlines or special characters."
            {hello 2 auth a b} "-WRONGPASS invalid username-password pair or user is disabled."
            {client getname} {$third}
        } $c
    }

    test "AUTH without a password configured" {
        replies {
            {auth x} "-ERR AUTH <password> called without any password configured for the default user. Are you sure\
                your configuration is correct?"
            {auth default x} +OK
            {auth nosuch x} "-WRONGPASS invalid username-password pair or user is disabled."
            {auth a b c} "-ERR syntax error"
        }
        arity_errors {auth}
    }

    # --- CLIENT ID, names, info ------------------------------------------------------------

    test "CLIENT ID grows with every connection" {
        set a [new_client]
        $a ping
        set b [new_client]
        assert_equal [expr {[$a client id] + 1}] [$b client id]
        assert_equal [$a client id] [$a client id]
    }

    test "CLIENT SETNAME and GETNAME" {
        set c [new_client]
        replies {
            {client getname} nil$
            {client setname foo} +OK
            {client getname} {$foo}
            {client setname ""} +OK
            {client getname} nil$
            {client setname "a b"} "-ERR Client names cannot contain spaces, newlines or special characters."
            {client setname "a\nb"} "-ERR Client names cannot contain spaces, newlines or special characters."
            {client setname "\x80"} "-ERR Client names cannot contain spaces, newlines or special characters."
            {client setname "a~!"} +OK
            {client getname} {$a~!}
        } $c
        assert_reply [new_client -resp 3] _ client getname
    }

    test "CLIENT SETINFO" {
        set c [new_client]
        replies {
            {client setinfo lib-name redis-py} +OK
            {client setinfo LIB-VER 1.2.3} +OK
            {client setinfo foo bar} "-ERR Unrecognized option 'foo'"
            {client setinfo lib-name "a b"} "-ERR lib-name cannot contain spaces, newlines or special characters."
            {client setinfo lib-ver "a\n"} "-ERR lib-ver cannot contain spaces, newlines or special characters."
        } $c
        assert_match "*lib-name=redis-py lib-ver=1.2.3*" [$c client info]
        $c client setinfo lib-name ""
        assert_match "*lib-name= lib-ver=1.2.3*" [$c client info]
    }

    test "CLIENT INFO has its fields in order" {
        set c [new_client]
        $c select 4
        $c client setname me
        set text [$c client info]
        set f [client_fields $text]
        set known [list id addr laddr fd name age idle flags db sub psub ssub multi watch qbuf qbuf-free argv-mem \
            multi-mem rbs rbp obl oll omem \
            tot-mem events cmd user redir resp lib-name lib-ver tot-net-in tot-net-out tot-cmds]
        # Newer servers have more fields.
        assert_equal $known [lmap k [dict keys $f] {if {$k ni $known} continue; set k}]
        assert_equal "\n" [string index $text end]
        foreach {field want} {name me db 4 sub 0 psub 0 ssub 0 multi -1 watch 0 flags N cmd client|info user default\
            redir -1 resp 2 oll 0 omem 0 events r} {
            assert_equal $want [dict get $f $field] $field
        }
        assert_equal [$c client id] [dict get $f id]
        assert_range [dict get $f age] 0 2
        assert_range [dict get $f idle] 0 1
        assert_regexp {^127\.0\.0\.1:\d+$} [dict get $f addr]
        assert_equal 2 [dict get $f tot-cmds]
    }

    test "CLIENT INFO shows the addresses of both ends" -tags {tcp-only} {
        set c [new_client]
        set f [client_fields [$c client info]]
        assert_equal 127.0.0.1:[$c -localport] [dict get $f addr]
        assert_equal 127.0.0.1:[srv port] [dict get $f laddr]
    }

    test "CLIENT INFO counts bytes and commands" {
        set c [new_client]
        $c ping
        set a [client_fields [$c client info]]
        $c echo [string repeat x 1000]
        set b [client_fields [$c client info]]
        assert_equal [expr {[dict get $a tot-cmds] + 2}] [dict get $b tot-cmds]
        assert_range [expr {[dict get $b tot-net-in] - [dict get $a tot-net-in]}] 1020 1100
        assert_range [expr {[dict get $b tot-net-out] - [dict get $a tot-net-out]}] 1000 1900
    }

    test "CLIENT LIST shows every client with what it does" {
        set a [new_client]
        set b [new_client -resp 3 -db 7]
        $a client setname alice
        $b client setname bob
        $b get key
        set f [client_line [$b client id]]
        assert_equal bob [dict get $f name]
        assert_equal 7 [dict get $f db]
        assert_equal 3 [dict get $f resp]
        assert_equal client|id [dict get $f cmd]
        assert_equal alice [dict get [client_line [$a client id]] name]
        assert_morethan [dict get $f tot-mem] 0
    }

    test "CLIENT LIST by type and id" {
        set a [new_client]
        set ida [$a client id]
        set idb [r client id]
        assert_match "id=$ida *" [r client list id $ida]
        set lines [split [string trim [r client list id $ida $idb 999999]] \n]
        assert_equal 2 [llength $lines]
        assert_match "*id=$ida *" [r client list type normal]
        assert_match "*id=$ida *" [r client list TYPE NORMAL]
        assert_equal "" [r client list id 999999]
        foreach type {master replica slave pubsub primary} {assert_equal "" [r client list type $type]}
        replies {
            {client list x} "-ERR syntax error"
            {client list type} "-ERR syntax error"
            {client list id} "-ERR syntax error"
            {client list type foo} "-ERR Unknown client type 'foo'"
            {client list id x} "-ERR syntax error"
        }
    }

    test "CLIENT LIST is verbatim text in RESP3" {
        set c [new_client -resp 3]
        assert_match "=txt:id=*" [$c -typed client list]
        assert_match "=txt:id=*" [$c -typed client info]
    }

    test "idle grows while a client is silent" {
        set c [new_client]
        set id [$c client id]
        wait_for_condition 4000 {[dict get [client_line $id] idle] >= 1}
        $c ping
        assert_equal 0 [dict get [client_line $id] idle]
    }

    # --- CLIENT KILL -----------------------------------------------------------------------

    test "CLIENT KILL by address" {
        set c [new_client]
        set addr [dict get [client_fields [$c client info]] addr]
        assert_typed +OK client kill $addr
        assert_closed $c
        assert_typed "-ERR No such client" client kill $addr
        assert_typed "-ERR No such client" client kill 1.2.3.4:5
        assert_typed "-ERR No such client" client kill nonsense
    }

    test "CLIENT KILL ADDR, LADDR, ID" {
        set c [new_client]
        set f [client_fields [$c client info]]
        assert_typed :1 client kill addr [dict get $f addr]
        assert_closed $c
        set c [new_client]
        set f [client_fields [$c client info]]
        assert_typed :1 client kill id [dict get $f id]
        assert_closed $c
        assert_typed :0 client kill id [dict get $f id]
        assert_typed :0 client kill addr 1.2.3.4:5
        assert_typed :0 client kill laddr 1.2.3.4:5
        set c [new_client]
        set d [new_client]
        $d ping
        set laddr [dict get [client_fields [$c client info]] laddr]
        # The client that sends the command is not closed.
        assert_range [r client kill laddr $laddr] 2 10
        assert_closed $c
        assert_closed $d
        assert_equal PONG [r ping]
    }

    test "CLIENT KILL TYPE, USER, MAXAGE and several filters together" {
        set c [new_client]
        set id [$c client id]
        assert_typed :0 client kill type pubsub
        assert_typed :0 client kill type master id $id
        assert_typed :0 client kill id $id maxage 100000
        assert_typed :0 client kill id $id addr 1.2.3.4:5
        assert_equal PONG [$c ping]
        assert_typed :1 client kill id $id type normal user default
        assert_closed $c
        set c [new_client]
        set id [$c client id]
        wait_for_condition 4000 {[dict get [client_line $id] age] >= 2}
        assert_typed :1 client kill maxage 1 id $id
        assert_closed $c
    }

    test "CLIENT KILL SKIPME" {
        set c [new_client]
        set id [$c client id]
        assert_typed :0 client kill id [r client id]
        assert_typed :0 client kill id [r client id] skipme yes
        assert_reply $c :1 client kill id $id skipme no
        assert_closed $c
        # The old form has no SKIPME and also closes the caller.
        set c [new_client]
        assert_reply $c +OK client kill [dict get [client_fields [$c client info]] addr]
        assert_closed $c
    }

    test "HELLO shows the availability zone where there is one" -needs {version 8.1} {
        set c [new_client]
        assert {![dict exists [$c hello 3] availability_zone]}
        r config set availability-zone zone-a
        assert_equal zone-a [dict get [$c hello] availability_zone]
        r config set availability-zone ""
    }

    # --- the filters of 9.0 -------------------------------------------------------------

    # The clients of `names` that CLIENT LIST shows, in its order; names are variables of the caller with their ids.
    proc names_listed {c ids args} {
        lmap line [split [string trim [$c client list {*}$args]] \n] {
            if {$line eq ""} continue
            set id [dict get [client_fields $line] id]
            if {![dict exists $ids $id]} continue
            dict get $ids $id
        }
    }

    test "CLIENT LIST filters by ids, in the order of the connections, and adds repeated IDs up" -needs {version 9.0} {
        foreach name {a b c} {set $name [new_client]; dict set ids [[set $name] client id] $name}
        lassign [dict keys $ids] ia ib ic
        assert_equal {a c} [names_listed $a $ids id $ic $ia]
        assert_equal {a c} [names_listed $a $ids id $ia id $ic]
        assert_equal {a} [names_listed $a $ids id $ia $ia]
        assert_equal {} [names_listed $a $ids id $ia not-id $ia]
        assert_equal {b} [names_listed $a $ids id $ia $ib not-id $ia $ic]
        assert_equal {c} [names_listed $a $ids not-id $ia not-id $ib]
        assert_equal {b c} [names_listed $a $ids skipme yes]
        assert_equal {b} [names_listed $a $ids skipme YES id $ia $ib]
        foreach name {a b c} {[set $name] -close}
    }

    test "CLIENT LIST filters by name, library, database, capability, flags and address" -needs {version 9.0} {
        foreach name {a b c} {set $name [new_client]; dict set ids [[set $name] client id] $name}
        $b client setname bee
        $b client setinfo lib-name lib
        $b client setinfo lib-ver 1.2
        $b select 3
        $b client capa redirect
        $c client no-evict on
        $c subscribe channel
        assert_equal r [dict get [client_fields [$b client info]] capa]
        foreach {filter expected} {
            {name bee} b  {name BEE} {}  {not-name bee} {a c}  {name ""} {}  {not-name ""} {a b c}  {name bee name x} {}
            {lib-name lib} b  {not-lib-name lib} {a c}  {lib-ver 1.2} b  {not-lib-ver 1.2} {a c}
            {db 3} b  {not-db 3} {a c}  {db 0} {a c}
            {capa r} b  {not-capa r} {a c}  {capa ""} {a b c}
            {flags P} c  {flags eP} c  {flags Pb} {}  {not-flags P} {a b}  {flags N} {a b}
            {type pubsub} c  {not-type pubsub} {a b}
            {user default} {a b c}  {not-user default} {}
            {idle 100000} {}  {maxage 100000} {}
            {db 3 name bee} b  {db 0 name bee} {}
        } {
            assert_equal $expected [names_listed $a $ids {*}$filter] $filter
        }
        set fields [client_fields [$b client info]]
        set address [dict get $fields addr]
        assert_equal b [names_listed $a $ids addr $address]
        assert_equal {a c} [names_listed $a $ids not-addr $address]
        assert_equal {a b c} [names_listed $a $ids laddr [dict get $fields laddr]]
        assert_equal {} [names_listed $a $ids not-laddr [dict get $fields laddr]]
        regexp {^(.*):\d+$} $address -> ip
        set ip [string trim $ip {[]}]
        assert_equal {a b c} [names_listed $a $ids ip $ip]
        assert_equal {} [names_listed $a $ids not-ip $ip]
        foreach name {a b c} {[set $name] -close}
    }

    test "CLIENT LIST refuses bad filters" -needs {version 9.0} {
        replies {
            {client list id 0} "-ERR client-id should be greater than 0"
            {client list id 1 x} "-ERR syntax error"
            {client list not-id x} "-ERR syntax error"
            {client list addr} "-ERR syntax error"
            {client list foo bar} "-ERR syntax error"
            {client list user nouser} "-ERR No such user 'nouser'"
            {client list not-user nouser} "-ERR No such user 'nouser'"
            {client list not-type foo} "-ERR Unknown client type 'foo'"
            {client list skipme maybe} "-ERR syntax error"
            {client list not-skipme yes} "-ERR syntax error"
            {client list maxage x} "-ERR maxage is not an integer or out of range"
            {client list maxage 0} "-ERR maxage should be greater than 0"
            {client list not-maxage 1} "-ERR syntax error"
            {client list idle x} "-ERR idle is not an integer or out of range"
            {client list idle 0} "-ERR idle should be greater than 0"
            {client list not-idle 1} "-ERR syntax error"
            {client list flags Q} "-ERR Unknown flags found in the provided filter: Q"
            {client list capa x} "-ERR Unknown capa found in the provided filter: x"
            {client list db x} "-ERR DB is not an integer or out of range"
            {client list db -1} "-ERR DB number should be between 0 and 15"
            {client list not-db 16} "-ERR NOT-DB number should be between 0 and 15"
            {client list not-flags Q} "-ERR Unknown flags found in the NOT-FLAGS filter: Q"
            {client list not-capa x} "-ERR Unknown capa found in the NOT-CAPA filter: x"
        }
    }

    test "CLIENT KILL takes several ids and the filters of CLIENT LIST" -needs {version 9.0} {
        foreach name {a b c d} {set $name [new_client]; set id_$name [[set $name] client id]}
        $d client setname dee
        assert_typed ":2" client kill id $id_a 999999 $id_b
        assert_closed $a
        assert_closed $b
        assert_typed ":1" client kill name dee
        assert_closed $d
        assert_typed ":0" client kill id $id_c not-db 0
        assert_equal PONG [$c ping]
        $c -close
        assert_typed ":0" client kill idle 1000000
    }

    test "CLIENT KILL refuses bad filters" {
        replies {
            {client kill id x} "-ERR syntax error"
            {client kill id 0} "-ERR client-id should be greater than 0"
            {client kill id -1} "-ERR client-id should be greater than 0"
            {client kill type foo} "-ERR Unknown client type 'foo'"
            {client kill user nosuch} "-ERR No such user 'nosuch'"
            {client kill maxage x} "-ERR maxage is not an integer or out of range"
            {client kill maxage 0} "-ERR maxage should be greater than 0"
            {client kill maxage -1} "-ERR maxage should be greater than 0"
            {client kill foo bar} "-ERR syntax error"
            {client kill id 999999 foo} "-ERR syntax error"
            {client kill type normal skipme maybe} "-ERR syntax error"
            {client kill type normal skipme} "-ERR syntax error"
        }
    }

    test "what a killed client has pipelined is not executed" {
        r set killed 0
        set c [new_client]
        set id [$c client id]
        $c -write "[resp_command client kill id $id skipme no][resp_command set killed 1]"
        assert_equal :1 [$c -readline]
        assert_closed $c
        assert_equal 0 [r get killed]
    }

    # --- CLIENT PAUSE ------------------------------------------------------------------------

    test "CLIENT PAUSE ALL holds every command back until its time" {
        r set p 0
        foreach {mode before} {{} 0 all 1 ALL 2} {
            set c [new_client]
            set began [clock milliseconds]
            assert_typed +OK client pause 250 {*}$mode
            $c -send get p
            $c -send incr p
            set replies ""
            while {$replies eq "" && [clock milliseconds] < $began + 200} {
                set replies [$c -available]
                # On a busy machine the pause may have ended between the two readings of the clock.
                if {[clock milliseconds] < $began + 250} {assert_equal "" $replies}
                after 20
            }
            if {$replies eq ""} {assert_equal [list $before [expr {$before + 1}]] [list [$c -read] [$c -read]]}
            assert_range [expr {[clock milliseconds] - $began}] 240 30000
            wait_for_condition 5000 {[r get p] == $before + 1}
            $c -close
        }
    }

    test "CLIENT PAUSE WRITE holds writes back only" {
        r set p 0
        set c [new_client]
        assert_typed +OK client pause 100000 write
        assert_equal 0 [r get p]
        $c -send set p 1
        wait_for_condition 2000 {[info_field clients blocked_clients] == 1}
        assert_equal 0 [r get p]
        assert_equal "" [$c -available]
        assert_typed +OK client unpause
        assert_equal OK [$c -read]
        assert_equal 1 [r get p]
    }

    test "CLIENT PAUSE WRITE pauses commands that may be propagated" {
        r pfadd hll a
        foreach {command reply} {{publish ch m} 0 {spublish ch m} 0 {pfcount hll} 1} {
            set c [new_client]
            assert_typed +OK client pause 100000 write
            $c -send {*}$command
            wait_for_condition 5000 {[info_field clients blocked_clients] == 1}
            assert_equal "" [$c -available]
            r client unpause
            assert_equal $reply [$c -read]
            $c -close
        }
    }

    test "a second pause may only make it longer and stricter" {
        r client pause 100000 write
        r client pause 1 write
        set c [new_client]
        $c -send set p 2
        wait_for_condition 2000 {[info_field clients blocked_clients] == 1}
        assert_equal 1 [r get p]
        r client unpause
        assert_equal OK [$c -read]
        assert_typed +OK client pause 0
    }

    test "keys do not expire during a pause of writes" {
        r flushall
        r set e v px 30
        r client pause 100000 write
        let_pass 30
        assert_equal {} [r get e]
        assert_typed :1 dbsize
        r client unpause
        wait_for_condition 3000 {[r exists e] == 0}
    }

    test "CLIENT PAUSE refuses bad arguments" {
        replies {
            {client pause x} "-ERR timeout is not an integer or out of range"
            {client pause -1} "-ERR timeout is negative"
            {client pause 10 foo} "-ERR CLIENT PAUSE mode must be WRITE or ALL"
            {client unpause} +OK
        }
    }

    # --- CLIENT REPLY and the rest --------------------------------------------------------------

    test "CLIENT REPLY OFF, SKIP and ON" {
        set c [new_client]
        $c -send client reply off
        $c -send set cr 1
        $c -send get cr
        $c -send client reply on
        assert_equal OK [$c -read]
        assert_equal 1 [$c get cr]
        $c -send client reply skip
        $c -send echo not-shown
        $c -send echo shown
        assert_equal shown [$c -read]
        $c -send client reply skip
        $c -send client reply off
        $c -send ping
        $c -send client reply on
        assert_equal OK [$c -read]
        $c -send client reply off
        $c -send nosuchcommand
        $c -send client reply on
        assert_equal OK [$c -read]
        replies {{client reply foo} "-ERR syntax error" {client reply on} +OK} $c
    }

    test "CLIENT REPLY SKIP also omits the reply of a command that blocks, however its wait ends" {
        set c [new_client]
        set id [$c client id]
        r del skipped
        foreach {command end} {
            {blpop skipped 0} {r rpush skipped 1} {blmove skipped moved left left 0} {r rpush skipped 1}
            {xread block 0 streams skippedx $} {r xadd skippedx * a b} {blpop skipped 0.01} {}
            {blpop skipped 0} {r client unblock $id error} {blpop skipped 0} {r client unblock $id}
            {wait 100 10} {} {blpop skipped -1} {} {lpop skipped} {}
        } {
            $c -write [resp_command client reply skip][resp_command {*}$command]
            if {$end ne ""} {
                wait_for_condition 5000 {[string match {*flags=b*} [r client list id $id]]} {}
                eval $end
            }
            assert_equal [list $command shown] [list $command [$c echo shown]]
        }
        $c -write [resp_command client reply skip][resp_command blpop skipped 0]
        wait_for_condition 5000 {[string match {*flags=b*} [r client list id $id]]} {}
        $c -close
        assert_equal PONG [r ping]
    }

    test "CLIENT NO-EVICT shows in the flags" {
        set c [new_client]
        assert_reply $c +OK client no-evict on
        assert_match "*e*" [dict get [client_fields [$c client info]] flags]
        assert_reply $c +OK client no-evict off
        assert_equal N [dict get [client_fields [$c client info]] flags]
        assert_typed "-ERR syntax error" client no-evict foo
    }

    test "CLIENT NO-TOUCH keeps idle times" {
        r set nt value
        set c [new_client]
        assert_reply $c +OK client no-touch on
        assert_equal T [dict get [client_fields [$c client info]] flags]
        wait_for_condition 4000 {[r object idletime nt] >= 1}
        foreach command {{get nt} {set nt value} {set nt 1 ex 100} {getset nt 2} {mset nt 3} {incrbyfloat nt 1}
            {bitop not nt nt}} {
            $c {*}$command
            assert_morethan [r object idletime nt] 0 $command
        }
        $c touch nt
        assert_equal 0 [r object idletime nt]
        assert_reply $c +OK client no-touch off
        assert_typed "-ERR syntax error" client no-touch foo
    }

    test "CLIENT HELP and unknown subcommands" {
        set help [r client help]
        assert_equal "CLIENT <subcommand> \[<arg> \[value] \[opt] ...]. Subcommands are:" [lindex $help 0]
        foreach word {GETNAME ID INFO KILL LIST PAUSE UNPAUSE REPLY SETNAME SETINFO NO-EVICT NO-TOUCH HELP} {
            assert_match "*$word*" $help
        }
        assert_equal "    Print this help." [lindex $help end]
        replies {
            {client foo} "-ERR unknown subcommand 'foo'. Try CLIENT HELP."
            {client} "-ERR wrong number of arguments for 'client' command"
            {client id x} "-ERR wrong number of arguments for 'client|id' command"
            {client getname x} "-ERR wrong number of arguments for 'client|getname' command"
            {client setname} "-ERR wrong number of arguments for 'client|setname' command"
            {client setinfo} "-ERR wrong number of arguments for 'client|setinfo' command"
            {client kill} "-ERR wrong number of arguments for 'client|kill' command"
            {client pause} "-ERR wrong number of arguments for 'client|pause' command"
            {client unpause x} "-ERR wrong number of arguments for 'client|unpause' command"
            {client reply} "-ERR wrong number of arguments for 'client|reply' command"
            {client no-evict} "-ERR wrong number of arguments for 'client|no-evict' command"
            {client no-touch} "-ERR wrong number of arguments for 'client|no-touch' command"
            {client info x} "-ERR wrong number of arguments for 'client|info' command"
            {client help x} "-ERR wrong number of arguments for 'client|help' command"
        }
    }

    test "CLIENT CAPA accepts redirect and unknown capabilities" {
        replies {{client capa redirect} +OK {client capa foo} +OK\
            {client capa} "-ERR wrong number of arguments for 'client|capa' command"}
    }

    test "connections are counted" {
        set clients {}
        set n [info_field clients connected_clients]
        set total [info_field stats total_connections_received]
        for {set i 0} {$i < 20} {incr i} {lappend clients [new_client]}
        foreach c $clients {$c ping}
        assert_equal [expr {$n + 20}] [info_field clients connected_clients]
        assert_equal [expr {$total + 20}] [info_field stats total_connections_received]
        foreach c $clients {$c -close}
        wait_for_condition 3000 {[info_field clients connected_clients] == $n}
    }

    test "a thousand connections come and go" -timeout 240 {
        for {set i 0} {$i < 1000} {incr i} {
            set c [new_client]
            if {$i % 3} {$c ping}
            $c -close
        }
        wait_for_condition 5000 {[info_field clients connected_clients] == 1}
    }
}

start_server {overrides {requirepass foobar} tags {connection}} {
    test "without AUTH only a few commands are allowed" {
        replies {
            {ping} "-NOAUTH Authentication required."
            {get a} "-NOAUTH Authentication required."
            {set a b} "-NOAUTH Authentication required."
            {select 1} "-NOAUTH Authentication required."
            {client list} "-NOAUTH Authentication required."
            {info} "-NOAUTH Authentication required."
            {hello 3} "-NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto>\
                AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version\
                at the same time"
            {auth wrong} "-WRONGPASS invalid username-password pair or user is disabled."
            {auth default wrong} "-WRONGPASS invalid username-password pair or user is disabled."
            {auth nosuch foobar} "-WRONGPASS invalid username-password pair or user is disabled."
            {hello 3 auth default wrong} "-WRONGPASS invalid username-password pair or user is disabled."
            {nosuch} "-NOAUTH Authentication required."
            {get} "-NOAUTH Authentication required."
            {reset} +RESET
            {auth foobar} +OK
            {ping} +PONG
            {reset} +RESET
            {ping} "-NOAUTH Authentication required."
            {auth default foobar} +OK
            {ping} +PONG
            {auth wrong} "-WRONGPASS invalid username-password pair or user is disabled."
            {ping} +PONG
        }
    }

    test "HELLO with AUTH authenticates and switches" {
        set c [new_client]
        assert_match {% {$server} *} [$c -typed hello 3 auth default foobar setname me]
        assert_equal me [$c client getname]
        assert_reply $c _ get none
    }

    test "QUIT is allowed without AUTH" {
        set c [new_client]
        assert_equal OK [$c quit]
        assert_closed $c
    }

    test "requirepass can be changed at run time" {
        set c [new_client]
        $c auth foobar
        r auth foobar
        r config set requirepass other
        assert_equal PONG [$c ping]
        set d [new_client]
        assert_error_like "WRONGPASS*" {$d auth foobar}
        assert_equal OK [$d auth other]
        assert_equal other [config_get requirepass]
        r config set requirepass ""
        set e [new_client]
        assert_equal PONG [$e ping]
        r config set requirepass foobar
    }
}

start_server {tags {connection}} {
    # A client is unblocked and sends a request in the turn in which the pause begins: it is both in the queue of turns
    # and paused.
    test "CLIENT PAUSE holds a client that was unblocked in the same turn of the event loop" {
        foreach mode {all write} {
            r del k x
            set a [new_client]
            set b [new_client]
            set c [new_client]
            foreach x [list $a $b $c] {$x ping}
            $a -send blpop k 0
            wait_for_condition 5000 {[info_field clients blocked_clients] == 1}
            # All three requests arrive while the server sleeps, and are served in one turn.
            $c -send debug sleep 0.3
            $b -write [resp_command rpush k 1][resp_command client pause 300 $mode]
            $a -write [resp_command set x 1]
            $a -flush
            $b -flush
            assert_equal OK [$c -read]
            assert_equal {k 1} [$a -read]
            assert_equal OK [$a -read]
            assert_equal 1 [$b -read]
            assert_equal OK [$b -read]
            assert_equal 1 [r get x]
            foreach x [list $a $b $c] {
                assert_equal PONG [$x ping]
                $x -close
            }
        }
    }
}
