# Users and their permissions: rules, checks, ACL commands, authentication, clients of users that change. seconds: 8

# The digest of "secret".
set secret 2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b

# A client of a user with these rules.
proc user_client {name args} {
    r acl setuser $name reset on nopass {*}$args
    return [new_client -auth [list $name x]]
}
proc denied_command {user command} {return "NOPERM User $user has no permissions to run the '$command' command"}
proc acl_list {name} {
    foreach line [r acl list] {if {[lindex $line 1] eq $name} {return $line}}
    fail "there is no user $name"
}
# The fields of the entries of ACL LOG, the latest first.
proc acl_log {args} {
    set entries {}
    foreach entry [r acl log] {
        lappend entries [lmap field $args {dict get $entry $field}]
    }
    return $entries
}
proc rule_error {rule why} {
    assert_error "ERR Error in ACL SETUSER modifier '$rule': $why" [list r acl setuser tried $rule]
}
start_server {tags {acl}} {
    test "a new user may do nothing, the default user everything" {
        assert_equal {{user default on nopass ~* &* +@all}} [r acl list]
        r acl setuser new
        assert_equal {user new off resetchannels -@all} [acl_list new]
        assert_equal {default new} [r acl users]
        r acl deluser new
    }

    test "ACL WHOAMI names the user of the connection" {
        assert_typed {$default} acl whoami
        set c [user_client me +@all]
        assert_equal me [$c acl whoami]
        $c reset
        assert_equal default [$c acl whoami]
        assert_error "ERR wrong number of arguments for 'acl|whoami' command" {r acl whoami x}
    }

    test "ACL CAT lists categories and their commands" {
        set categories {keyspace read write set sortedset list hash string bitmap hyperloglog geo stream pubsub\
            admin fast slow}
        lappend categories blocking dangerous connection transaction scripting
        if {[lindex [r command info blob.get] 0] ne ""} {lappend categories largeobj}
        assert_equal $categories [r acl cat]
        assert {"get" in [r acl cat string]}
        assert {"get" ni [r acl cat write]}
        assert {"client|kill" in [r acl cat DANGEROUS]}
        replies {{acl cat foo} "-ERR Unknown category 'foo'"}
    }

    test "ACL GENPASS gives as many bits as it is asked for" {
        assert_regexp {^[0-9a-f]{64}$} [r acl genpass]
        assert_regexp {^[0-9a-f]{2}$} [r acl genpass 5]
        assert_equal 1024 [string length [r acl genpass 4096]]
        assert {[r acl genpass] ne [r acl genpass]}
        foreach bits {0 -1 4097} {
            assert_error "ERR ACL GENPASS argument must be the number of bits for the output password, a positive\
                number up to 4096" {r acl genpass $bits}
        }
        assert_error "ERR value is not an integer or out of range" {r acl genpass x}
    }

    test "passwords are kept as digests, and any of them logs in" {
        r acl setuser alice reset on >secret >other
        assert_equal [list $secret [lindex [dict get [r acl getuser alice] passwords] 1]] \
            [dict get [r acl getuser alice] passwords]
        set c [new_client]
        assert_equal OK [$c auth alice secret]
        assert_equal OK [$c auth alice other]
        assert_error "WRONGPASS invalid username-password pair or user is disabled." {$c auth alice wrong}
        r acl setuser alice <other
        assert_error "WRONGPASS invalid username-password pair or user is disabled." {$c auth alice other}
        r acl setuser alice resetpass "#$secret"
        assert_equal OK [$c auth alice secret]
        r acl setuser alice "!$secret"
        assert_error "WRONGPASS invalid username-password pair or user is disabled." {$c auth alice secret}
        r acl setuser alice nopass
        assert_equal OK [$c auth alice anything]
        r acl setuser alice off
        assert_error "WRONGPASS invalid username-password pair or user is disabled." {$c auth alice anything}
        assert_error "WRONGPASS invalid username-password pair or user is disabled." {$c auth nobody x}
    }

    test "ACL GETUSER shows rules, in RESP3 as a map" -needs {version 9.1} {
        r acl setuser bob reset on >secret ~a* %R~b* %W~c* &ch +@read -get +config|get db=2,0 (~s +set db=1)
        set permissions [list commands {-@all +@read -get +config|get} keys {~a* %R~b* %W~c*} channels &ch \
            databases db=0,2]
        set selector [list commands {-@all +set} keys ~s channels {} databases db=1]
        assert_equal [list flags on passwords $secret {*}$permissions selectors [list $selector]] [r acl getuser bob]
        assert_typed nil$ acl getuser nobody
        set c [new_client -resp 3]
        assert_equal % [lindex [$c -typed acl getuser bob] 0]
    }

    test "ACL LIST shows rules that make the user again" {
        r acl setuser bob reset on >secret ~a* %R~b* %W~c* &ch +@read -get +config|get (~s +set) (allkeys &x -@all)
        set line [acl_list bob]
        assert_equal "user bob on #$secret ~a* %R~b* %W~c* resetchannels &ch -@all +@read\
            -get +config|get (~s resetchannels -@all +set) (~* resetchannels &x -@all)" $line
        r acl setuser copy reset {*}[lrange $line 2 end]
        assert_equal [lrange $line 2 end] [lrange [acl_list copy] 2 end]
    }

    test "rules of one name replace each other" {
        foreach {rules shown} {
            {+get +set +get} {-@all +set +get}
            {+get -get} {-@all -get}
            {+config|get +config|set +config} {-@all +config}
            {+config -config|get -config} {-@all -config}
            {+@read +@write -@read} {-@all +@write -@read}
            {+select|0 +select|1 -select} {-@all -select}
            {+get +@all} +@all
            {+@all -get nocommands} -@all
            {+GET -@READ} {-@all +get -@read}
            {+select|FOO +select|foo} {-@all +select|foo}
        } {
            r acl setuser bob reset {*}$rules
            assert_equal $shown [dict get [r acl getuser bob] commands]
        }
    }

    test "invalid rules are refused with their reason, and nothing changes" {
        r acl setuser tried reset on ~x
        set before [acl_list tried]
        rule_error nosuch "Syntax error"
        foreach rule {+nosuch -nosuch +@nosuch -@nosuch +config|nosuch -get|x + - +@ +get|x|y} {
            rule_error $rule "Unknown command or category name in ACL"
        }
        rule_error +get| "Syntax error"
        rule_error +config|get|x "Allowing first-arg of a subcommand is not supported"
        rule_error <nopass "The password you are trying to remove from the user does not exist"
        foreach rule {#abc !abc} {
            rule_error $rule "The password hash must be exactly 64 characters and contain only lowercase\
                hexadecimal characters"
        }
        foreach rule {%~x % %RR~x %X~x "~a b" "&a b" ) (on) (reset) (>pw) ((+get))} {rule_error $rule "Syntax error"}
        rule_error "(+nosuch)" "Unknown command or category name in ACL"
        assert_error "ERR Error in ACL SETUSER modifier '~y': Adding a pattern after the * pattern (or the 'allkeys'\
            flag) is not valid and does not have any effect. Try 'resetkeys' to start with an empty list of patterns"\
            {r acl setuser tried allkeys ~y}
        assert_error "ERR Error in ACL SETUSER modifier '&y': Adding a pattern after the * pattern (or the\
            'allchannels' flag) is not valid and does not have any effect. Try 'resetchannels' to start with an empty\
            list of channels" {r acl setuser tried allchannels &y}
        assert_error "ERR Unmatched parenthesis in acl selector starting at '(+get'." {r acl setuser tried (+get ~x}
        assert_error "ERR Error in ACL SETUSER modifier '(~a on x)': Syntax error" {r acl setuser tried (~a on x)}
        assert_error "ERR Usernames can't contain spaces or null characters" {r acl setuser "a b" on}
        assert_equal $before [acl_list tried]
        assert_error "ERR Error in ACL SETUSER modifier 'nosuch': Syntax error" {r acl setuser absent on nosuch}
        assert_typed nil$ acl getuser absent
    }

    test "databases are a sorted list, all, or none" -needs {version 9.1} {
        foreach {rules shown} {{} alldbs db=3,1,2,1 db=1,2,3 {db=1 db=5} db=5 resetdbs {} {db=1 alldbs} alldbs} {
            r acl setuser bob reset {*}$rules
            assert_equal $shown [dict get [r acl getuser bob] databases]
        }
        foreach rule {db= db=x db=1, db=,1 db=1,,2 db} {rule_error $rule "Syntax error"}
        foreach rule {db=-1 db=2147483648} {rule_error $rule "The provided database ID is out of range"}
    }

    test "a user may run its commands and no other" {
        set c [user_client bob ~* +get +config|get +select|0 -@dangerous +@hash -hdel]
        replies [list {get k} nil$ {set k v} -[denied_command bob set] {hset h f v} :1 {hdel h f} \
            -[denied_command bob hdel] \
            {config get maxmemory} -[denied_command bob config|get] {select 0} +OK {select 1}\
            -[denied_command bob select] \
            {nosuch} "-ERR unknown command 'nosuch', with args beginning with: "\
            {get} "-ERR wrong number of arguments for 'get' command"] $c
        r acl setuser bob +config|get
        assert_match {maxmemory *} [$c config get maxmemory]
        assert_error [denied_command bob config|set] {$c config set maxmemory 0}
        assert_equal OK [$c auth bob x]
        assert_match {*proto 2*} [$c hello]
    }

    test "a user may read and write the keys of its patterns" {
        set c [user_client bob +@all ~x* %R~r* %W~w?]
        r set y 1
        set no "-NOPERM No permissions to access a key"
        replies [list {set x1 v} +OK {get x1} {$v} {get y} $no {get r1} nil$ {set r1 v} $no {set w1 v} +OK \
            {get w1} $no {set w12 v} $no \
            {set w1 v get} $no {append w1 v} :2 {exists w1 x1 r1} :2 {mset x1 1 y 2} $no {mget x1 r1 y} $no\
            {rename x1 w1} +OK {copy w1 x1} $no \
            {object encoding y} $no {eval "return 1" 1 y} $no {sort x2 store y} $no {xread streams x9 y 0 0} $no\
            {lmpop 2 x9 y left} $no] $c
    }

    test "patterns of any length are compared as a whole" {
        set c [user_client bob +@all ~12345678 ~abcdefgh* ~long-prefix:* ~mid?le-of-a-name ~s %R~ro-prefix* ~]
        set no "-NOPERM No permissions to access a key"
        replies [list {get 12345678} nil$ {get 1234567} $no {get 123456789} $no {get abcdefgh} nil$ \
            {get abcdefghi} nil$ {get abcdefg} $no \
            {get abcdefgx} $no {get long-prefix:} nil$ {get long-prefix:1} nil$ {get long-prefix} $no\
            {get long-prexix:1} $no \
            {get middle-of-a-name} nil$ {get mile-of-a-name} $no {get middle-of-a-nam} $no {get s} nil$ {get sx} $no\
            {get ""} nil$ {get ro-prefix} nil$ \
            {set ro-prefix 1} $no {set s 1} +OK {incr s} :2 {getdel ro-prefix} $no {getdel s} {$2}] $c
    }

    test "keys with a prefix that was allowed before are checked as any others" {
        set c [user_client bob +@all %R~read:* %W~write:* ~both:* ~b*]
        set no "-NOPERM No permissions to access a key"
        for {set round 0} {$round < 3} {incr round} {
            replies [list {get read:key:1} nil$ {set read:key:1 v} $no {get read:key:2} nil$ {get reed:key:1} $no \
                {append write:key:1 ""} :0 {get write:key:1} $no {strlen both:key:1} :0 {set both:key:1 v} +OK \
                {get both:key:1} {$v} {getdel both:key:1} {$v} {get read:} nil$ {get read} $no {get read:k} nil$ \
                {getdel read:key:1} $no {get bot} nil$ {get b} nil$ {get aboth:key:1} $no] $c
        }
    }

    test "each rule counts from the next request on" {
        set c [user_client bob +@all ~x:*]
        set no "-NOPERM No permissions to access a key"
        replies [list {set x:1 v} +OK {get x:1} {$v} {get y:1} $no {ping} +PONG \
            {publish news m} "-NOPERM No permissions to access a channel"] $c
        r acl setuser bob resetkeys %R~y:*
        replies [list {get x:1} $no {get y:1} nil$ {set y:1 v} $no] $c
        r acl setuser bob -get &news
        replies [list {get y:1} -[denied_command bob get] {strlen y:1} :0 {publish news m} :0] $c
        r acl setuser bob +get allkeys -ping
        replies [list {get x:1} {$v} {set y:1 w} +OK {ping} -[denied_command bob ping]] $c
        r acl setuser bob reset on nopass (+get ~x:*)
        replies [list {get x:1} {$v} {get y:1} $no {set x:1 v} -[denied_command bob set]] $c
        r acl setuser bob clearselectors
        replies [list {get x:1} -[denied_command bob get]] $c
    }

    test "XREADGROUP needs the keys that it reads, wherever the argument GROUP is" -needs {ours 1} {
        set c [user_client bob +@all ~x* ~streams]
        set no "-NOPERM No permissions to access a key"
        foreach key {secret x1} {r xgroup create $key streams 0 mkstream}
        r xadd secret 1-1 f v
        replies [list {xreadgroup count 1 group streams x1 streams secret >} $no \
            {xreadgroup noack group streams streams streams secret >} $no \
            {xreadgroup group streams streams streams secret >} $no\
            {xreadgroup count 1 group streams secret streams x1 >} nil* \
            {xreadgroup group streams streams streams x1 secret > >} $no] $c
        assert_equal {x1 streams} [r command getkeys xreadgroup count 1 group streams a streams x1 streams 0 0]
        assert_error "ERR Invalid arguments specified for command" \
            {r command getkeys xreadgroup group g c count 1 streams a}
        # Without GROUP the command fails; its keys are searched where they would begin.
        foreach words {{streams x0 x0 x1 0 >} {noack streams a b c d} {a streams b c d e}} {
            assert_error "ERR Invalid arguments specified for command" {r command getkeys xreadgroup {*}$words}
        }
        assert_equal c [r command getkeys xreadgroup streams a b streams c d]
        assert_error "ERR Invalid arguments specified for command" \
            {r command getkeys xreadgroup group g c count 1 streams}
    }

    test "a selector allows a command only as a whole" {
        set c [user_client bob +get ~x (+set ~y) (+mget ~y %R~z)]
        set no "-NOPERM No permissions to access a key"
        replies [list {get x} nil$ {set y 1} +OK {get y} $no {set x 1} $no {mget y z} {* $1 nil$} {mget x y} $no \
            {del x} -[denied_command bob del]] $c
        r acl setuser bob clearselectors
        assert_error [denied_command bob set] {$c set y 1}
    }

    test "a user may use the channels of its patterns" {
        set c [user_client bob +@all ~* &news* &exact]
        set no "-NOPERM No permissions to access a channel"
        replies [list {publish news1 m} :0 {publish other m} $no {spublish exact m} :0 {spublish exact2 m} $no \
            {subscribe news1 other} $no \
            {psubscribe new*} $no {psubscribe newsx*} $no {ssubscribe other} $no {psubscribe news*}\
            {* $psubscribe $news* :1}] $c
    }

    test "a user may use its databases" -needs {version 9.1} {
        set c [user_client bob +@all ~* &* db=0,3]
        set no "-NOPERM No permissions to access database"
        replies [list {set k v} +OK {select 1} $no {move k 1} $no {copy k k2 db 1} $no {copy k k2 db 3} :1 \
            {swapdb 0 1} $no {flushall} $no {cluster flushslot 1} $no {cluster cancelslotmigrations} $no \
            {select 3} +OK {get k2} {$v} {select 99} "-ERR DB index is out of range"] $c
        r acl setuser bob db=0
        replies [list {get k2} $no {dbsize} $no {keys *} $no {eval "return 1" 0} $no {ping} +PONG {publish c m} :0 \
            {select 0} +OK {get k} {$v}] $c
    }

    test "SORT follows patterns only for users that may read every key" {
        set c [user_client bob +@all ~l]
        r del l
        r rpush l a b
        r mset w_a 2 w_b 1
        assert_error "ERR BY option of SORT denied due to insufficient ACL permissions." {$c sort l by w_*}
        assert_error "ERR GET option of SORT denied due to insufficient ACL permissions." {$c sort l by nosort get #}
        assert_equal {a b} [$c sort l by nosort]
        r acl setuser bob %R~*
        assert_equal {b a} [$c sort l by w_*]
    }

    test "a command that is no longer allowed fails in EXEC, one that is not allowed when queued aborts it" {
        set c [user_client bob +@all ~x &c]
        $c multi
        assert_error "NOPERM No permissions to access a key" {$c get y}
        assert_equal QUEUED [$c get x]
        assert_error "EXECABORT Transaction discarded because of previous errors." {$c exec}
        foreach command {{set x 1} {get x} {publish c m} {ping}} {
            if {$command eq "set x 1"} {$c multi}
            assert_equal QUEUED [$c {*}$command]
        }
        r acl setuser bob -get resetkeys resetchannels
        set changed "-NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call.\
            This command is no longer allowed for the following reason:"
        assert_equal [list * "$changed no permission to touch the specified keys" \
            "$changed no permission to execute the command or subcommand" \
            "$changed no permission to access one of the channels used as arguments" +PONG] [$c -typed exec]
    }

    test "a command that is no longer allowed counts as a failure of EXEC unless another follows, and not as its own" \
        -needs {version 9.1} {
        set c [user_client bob +@all ~*]
        foreach {commands failed} {
            {{set k v}} 1
            {{get k} {set k v} {set k v}} 1
            {{set k v} {get k}} 0
            {{set k v} {incr wrong}} 0
            {{incr wrong} {get k} {set k v}} 1
        } {
            r acl setuser bob +set
            r del wrong
            r rpush wrong v
            $c multi
            foreach command $commands {$c {*}$command}
            r acl setuser bob -set
            r config resetstat
            $c -typed exec
            assert_match "*cmdstat_exec:calls=1,*,rejected_calls=0,failed_calls=$failed*" [r info commandstats]
            assert_not_match "*cmdstat_set:*" [r info commandstats]
        }
    }

    test "a script's command that its caller may not run counts as NOPERM in errorstats" -needs {version 9.1} {
        set c [user_client bob +@all -set ~x &c]
        foreach script {
            {return server.call('set', 'x', 'v')} {return server.pcall('get', 'y')}
            {return server.pcall('publish', 'd', 'm')}
        } {
            r config resetstat
            assert_error_like "*ACL failure in script*" {$c eval $script 0}
            assert_match "*errorstat_NOPERM:count=1*" [r info errorstats]
            assert_not_match "*errorstat_ERR*" [r info errorstats]
        }
    }

    test "scripts and functions act with the rights of their caller" -needs {version 9.1} {
        set c [user_client bob +@all -del ~x]
        r function load replace "#!lua name=acl\nserver.register_function('try', function(keys, args)\
            return server.pcall('get', args\[1\]) end)"
        assert_equal {} [$c eval "return server.call('get', 'x')" 0]
        assert_error_like "*ACL failure in script: No permissions to access a key*" \
            {$c eval "return server.call('get', 'y')" 0}
        assert_error_like "*ACL failure in script: User bob has no permissions to run the 'del' command" \
            {$c eval "return server.pcall('del', 'x')" 0}
        assert_error_like "*ACL failure in script: No permissions to access a key*" {$c fcall try 0 y}
        assert_equal {} [$c fcall try 0 x]
        assert_equal 1 [$c eval "return server.acl_check_cmd('get', 'x')" 0]
        assert_equal {} [$c eval "return server.acl_check_cmd('get', 'y')" 0]
        assert_equal {} [$c eval "return server.acl_check_cmd('del', 'x')" 0]
    }

    test "a blocked command that is no longer allowed fails when it would be served" {
        set c [user_client bob +blpop ~x ~y]
        r del x y
        $c -send blpop x y 0
        wait_for_condition 5000 {[info_field clients blocked_clients] == 1}
        r acl setuser bob -blpop
        r lpush x 1
        assert_error [denied_command bob blpop] {$c -read}
        assert_equal 1 [r llen x]
    }

    test "removing a user closes its clients, changing one does not" {
        set c [user_client bob +@all ~*]
        set blocked [user_client bob +@all ~*]
        $blocked -send blpop nothing 0
        r acl setuser bob off resetpass
        assert_equal PONG [$c ping]
        assert_equal 1 [r acl deluser nobody bob]
        assert_closed $c
        assert_closed $blocked
        set c [user_client bob +@all]
        assert_equal 1 [$c acl deluser bob]
        assert_closed $c
        assert_error "ERR The 'default' user cannot be removed" {r acl deluser nobody default}
    }

    test "clients that may no longer use a channel they are subscribed to are closed" {
        set kept [user_client bob +@all &*]
        $kept subscribe c1
        set all {}
        foreach command {{subscribe c2} {psubscribe c*} {ssubscribe c2}} {
            set c [new_client -auth {bob x}]
            $c {*}$command
            lappend all $c
        }
        set idle [new_client -auth {bob x}]
        r acl setuser bob resetchannels &c1
        foreach c $all {assert_closed $c; $c -close}
        assert_equal {pong {}} [$kept ping]
        assert_equal PONG [$idle ping]
        r acl setuser bob reset
        assert_closed $kept
        assert_error [denied_command bob ping] {$idle ping}
    }

    test "ACL DRYRUN shows what would be denied" {
        r acl setuser bob reset +@all -del ~x &c
        foreach {command verdict} {
            {get x} OK {del x} "User bob has no permissions to run the 'del' command"\
                {get y} "User bob has no permissions to access the 'y' key"
            {publish d m} "User bob has no permissions to access the 'd' channel" {publish c m} OK {auth x} OK
        } {
            assert_equal $verdict [r acl dryrun bob {*}$command]
        }
        assert_error "ERR User 'nobody' not found" {r acl dryrun nobody get x}
        assert_error "ERR Command 'nosuch' not found" {r acl dryrun bob nosuch}
        assert_error "ERR wrong number of arguments for 'get' command" {r acl dryrun bob get}
    }

    test "ACL LOG has denied commands and failed logins, equal ones together" {
        set c [user_client bob +@all -del ~x &c]
        r acl log reset
        assert_equal {} [r acl log]
        set before [lmap what {auth key cmd channel} {info_field stats acl_access_denied_$what}]
        foreach key {a a b a} {catch {$c get $key}}
        catch {$c del x}
        catch {$c publish d m}
        $c multi
        catch {$c get a}
        catch {$c exec}
        catch {$c eval "return server.call('get', 'a')" 0}
        catch {$c auth bob2 wrong}
        set events {{1 auth toplevel auth bob2} {1 key lua a bob} {1 key multi a bob} {1 channel toplevel d bob}}
        lappend events {1 command toplevel del bob} {3 key toplevel a bob} {1 key toplevel b bob}
        assert_equal $events [acl_log count reason context object username]
        assert_equal 1 [llength [r acl log 1]]
        set entry [lindex [r acl log 1] 0]
        assert_equal {count reason context object username age-seconds client-info entry-id timestamp-created\
            timestamp-last-updated} [dict keys $entry]
        assert_match {id=* cmd=auth user=bob *} [dict get $entry client-info]
        assert_equal {1 6 1 1} [lmap what {auth key cmd channel} was $before \
            {expr {[info_field stats acl_access_denied_$what] - $was}}]
        r config set acllog-max-len 2
        catch {$c get z}
        assert_equal {z bob2} [list [lindex [acl_log object] 0] [lindex [acl_log username] 1]]
        assert_equal 2 [llength [r acl log 100]]
        r config set acllog-max-len 128
        assert_equal OK [r acl log reset]
        assert_equal {} [r acl log]
        assert_error "ERR value is not an integer or out of range" {r acl log x}
    }

    test "ACL LOG keeps only the beginning of long keys and names" -needs {ours 1} {
        set c [user_client bob +get ~x]
        r acl log reset
        catch {$c get [string repeat k 100000]}
        catch {$c auth [string repeat n 100000] wrong}
        lassign [r acl log] login key
        assert_equal [string repeat n 16384] [dict get $login username]
        assert_equal [string repeat k 16384] [dict get $key object]
    }

    test "acl-pubsub-default is what a new user and a reset one may use of channels" {
        r config set acl-pubsub-default allchannels
        r acl setuser bob reset (+get)
        assert_equal {user bob off &* -@all (&* -@all +get)} [acl_list bob]
        r config set acl-pubsub-default resetchannels
        r acl setuser bob reset
        assert_equal {user bob off resetchannels -@all} [acl_list bob]
    }

    test "requirepass is the password of the default user" {
        r config set requirepass secret
        assert_equal "user default on #$secret ~* &* +@all" [acl_list default]
        set c [new_client]
        assert_error "NOAUTH Authentication required." {$c ping}
        assert_equal OK [$c auth secret]
        r acl setuser default >other
        assert_equal OK [$c auth other]
        assert_equal {requirepass secret} [r config get requirepass]
        r config set requirepass next
        assert_error "WRONGPASS invalid username-password pair or user is disabled." {$c auth other}
        r config set requirepass ""
        assert_equal {user default on nopass ~* &* +@all} [acl_list default]
        assert_error "ERR AUTH <password> called without any password configured for the default user. Are you sure\
            your configuration is correct?" {$c auth x}
    }

    test "no client can connect without a user while the default user is off" {
        r acl setuser default off
        set c [new_client]
        assert_error "NOAUTH Authentication required." {$c get x}
        assert_error "WRONGPASS invalid username-password pair or user is disabled." {$c auth default x}
        r acl setuser bob reset on >secret +@all ~*
        assert_equal OK [$c auth bob secret]
        assert_equal PONG [$c ping]
        r acl setuser default on
    }

    test "the default user may be restricted like any other" {
        r acl setuser bob reset on nopass +@all ~* &*
        set admin [new_client -auth {bob x}]
        $admin acl setuser default -set
        assert_error [denied_command default set] {r set x 1}
        $admin acl setuser default resetkeys
        assert_error "NOPERM No permissions to access a key" {r get x}
        $admin acl setuser default allkeys +@all
        assert_equal OK [r set x 1]
    }

    test "ACL LOAD and ACL SAVE need an aclfile" {
        foreach command {load save} {
            assert_error_like "ERR This instance is not configured to use an ACL file. *" {r acl $command}
        }
        assert_match "ACL <subcommand>*" [lindex [r acl help] 0]
    }

    test "rules are not in the command log, MONITOR or the log" -needs {version 9.0} {
        r config set commandlog-execution-slower-than 0
        r acl setuser bob reset >veryhidden
        assert_not_match *veryhidden* [r commandlog get -1 slow]
        r config set commandlog-execution-slower-than 10000
    }
}

start_server {tags {acl}} {
    test "a replica needs the permissions of replication only, and applies what it gets without any" {
        r acl setuser replica reset on >secret +psync +replconf +ping
        r acl setuser default -@all +acl +info +set +replicaof +get +config
        start_server {tags {acl}} {
            r config set primaryuser replica primaryauth secret
            r acl setuser default -set -del
            r replicaof [srv -1 host] [srv -1 port]
            wait_for_condition 20000 {[info_field replication master_link_status] eq "up"}
            r -1 set k v
            wait_for_condition 20000 {[r get k] eq "v"}
        }
    }
}

start_server {tags {acl}} {
    test "CONFIG REWRITE keeps users, and a restart brings them back" -needs {version 9.1} {
        r acl setuser alice on >secret ~a %R~#c &x +@read (~s +set db=1)
        r acl setuser bob
        r acl setuser default -debug
        r config rewrite
        set before [r acl list]
        set lines [regexp -all -inline -line {^user .*$} [file_bytes [srv conf]]]
        assert_equal 3 [llength $lines]
        restart_server
        assert_equal $before [r acl list]
        r acl deluser bob
        r config rewrite
        assert_equal 2 [regexp -all -line {^user .*$} [file_bytes [srv conf]]]
    }

    test "CONFIG REWRITE keeps patterns of selectors that end with a parenthesis" -needs {ours 1} {
        r acl setuser ends on nopass {(~a) %R~b\) &[c) +get +set +publish)} {(~d) +get)} ~e)
        r config rewrite
        restart_server
        assert_match {*(~a\[)\] %R~b\[)\] resetchannels &\[c)\] -@all *) (~d\[)\] *)} [acl_list ends]
        set c [new_client -auth {ends x}]
        set no "-NOPERM No permissions to access a key"
        replies [list {set a) 1} +OK {get b)} nil$ {set b) 1} $no {get "b\\)"} $no {get d)} nil$ {set d) 1} $no \
            {publish ) m} :0 {publish c m} :0 \
            {publish x m} "-NOPERM No permissions to access a channel"] $c
        $c -close
        r acl deluser ends
        r acl setuser ends {(~a +select|0) +get)} {(+select|0))}
        r config rewrite
        restart_server
        assert_match {* (~a resetchannels -@all +get) (resetchannels -@all)} [acl_list ends]
        r acl deluser ends
    }

    test "CONFIG REWRITE quotes what the file would read as something else" -needs {ours 1} {
        r acl setuser quoted ~a"b &c'd
        r acl setuser (parenthesis ~a (~b +get)
        set before [r acl list]
        r config rewrite
        restart_server
        assert_equal $before [r acl list]
    }
}

proc acl_file {args} {write_file [file join [srv dir] users.acl] [join $args \n]\n}
set acl_dir [file join $::unit_dir acl]
file mkdir $acl_dir
write_file [file join $acl_dir users.acl] \
    "user alice on >secret ~* +@all\n\nuser default on nopass ~* &* +@all -debug\n"
start_server [list tags {acl} keep_dir $acl_dir overrides {aclfile users.acl}] {
    test "the server starts with the users of the aclfile" {
        assert_equal [list "user alice on #$secret ~* resetchannels +@all" \
            {user default on nopass ~* &* +@all -debug}] [r acl list]
    }

    test "ACL SAVE and ACL LOAD write and read the aclfile" {
        r acl setuser ends {(~x) +get)}
        assert_equal OK [r acl save]
        assert_equal OK [r acl load]
        assert_match {*(~x\[)\] *+get)} [acl_list ends]
        r acl deluser ends
        r acl setuser bob on >secret ~x (+get ~y)
        assert_equal OK [r acl save]
        set lines [r acl list]
        assert_equal [join $lines \n]\n [file_bytes [file join [srv dir] users.acl]]
        r acl deluser bob alice
        assert_equal OK [r acl load]
        assert_equal $lines [r acl list]
        r config rewrite
        assert_equal 0 [regexp -line {^user } [file_bytes [srv conf]]]
    }

    test "a user with an empty name survives ACL SAVE and ACL LOAD" {
        r acl setuser {} on >p ~x +get
        set before [r acl list]
        assert_equal OK [r acl save]
        assert_equal OK [r acl load]
        assert_equal $before [r acl list]
        set c [new_client]
        assert_equal OK [$c auth {} p]
        $c -close
        acl_file "user  on nopass" "user  " "user b  on   nopass"
        set errors "ERR [lindex [r config get aclfile] 1]:2 should start with user keyword followed by the username."
        append errors " WARNING: ACL errors detected, no change to the previously active ACL rules was performed"
        assert_error $errors {r acl load}
        acl_file "user  on nopass" "user b  on   nopass"
        assert_equal OK [r acl load]
        assert_equal {user  on nopass resetchannels -@all} [lindex [r acl list] 0]
        assert_equal {user b on nopass resetchannels -@all} [acl_list b]
    }

    test "ACL LOAD reports each unknown command of a line and the first of its other errors" {
        set file [lindex [r config get aclfile] 1]
        set end "WARNING: ACL errors detected, no change to the previously active ACL rules was performed"
        set none "Unknown command or category name in ACL"
        set applying "$file:1: Error in applying operation"
        foreach {line errors} {
            {user a +n1 nosuch other +n2} {$applying '+n1': $none. $file:1: Syntax error. $applying '+n2': $none. }
            {user a allkeys ~x} {$file:1: Adding a pattern after the \* pattern (or the 'allkeys' flag) is not valid\
                and does not have any effect. Try 'resetkeys' to start with an empty list of patterns. }
            {user a <p foo} {$file:1: The password you are trying to remove from the user does not exist. }
            {User a on} {$file:1 should start with user keyword followed by the username. }
            "user a\tb on" {'$file:1: username 'a\tb' contains invalid characters. }
        } {
            acl_file $line
            assert_error "ERR [subst $errors]$end" {r acl load}
        }
    }

    test "ACL LOAD closes the clients of users that are gone or lose their channels, and no other" {
        acl_file "user bob on nopass ~* +@all" "user carol on nopass &* +@all" "user dave on nopass +@all"
        assert_equal OK [r acl load]
        set bob [new_client -auth {bob x}]
        set carol [new_client -auth {carol x}]
        set subscribed [new_client -auth {carol x}]
        set dave [new_client -auth {dave x}]
        $subscribed subscribe c
        acl_file "user bob on nopass ~x +@all" "user carol on nopass &d +@all"
        assert_equal OK [r acl load]
        assert_closed $subscribed
        assert_closed $dave
        assert_equal carol [$carol acl whoami]
        assert_error "NOPERM No permissions to access a key" {$bob get y}
        assert_equal {user default on nopass ~* &* +@all} [acl_list default]
        foreach c {bob carol subscribed dave} {[set $c] -close}
    }

    test "ACL LOAD of a file with errors changes nothing and names their lines" {
        set before [r acl list]
        set file [lindex [r config get aclfile] 1]
        acl_file "user alice on" "user bob nosuch" "usr x" "user eve +nosuch" "user alice off" "user"
        set errors "ERR $file:2: Syntax error. $file:3 should start with user keyword followed by the username."
        append errors " $file:4: Error in applying operation '+nosuch': Unknown command or category name in ACL."
        append errors " WARNING: Duplicate user 'alice' found on line 5. $file:6 should start with user keyword\
            followed by the username."
        append errors " WARNING: ACL errors detected, no change to the previously active ACL rules was performed"
        assert_error $errors {r acl load}
        assert_equal $before [r acl list]
        file delete [file join [srv dir] users.acl]
        assert_error "ERR Error loading ACLs, opening file '$file': No such file or directory" {r acl load}
        assert_equal $before [r acl list]
    }
}

proc conf {text} {
    set file [file join $::unit_dir c[incr ::conf_n].conf]
    write_file $file $text
    return $file
}
test "wrong user lines keep the server from starting" {
    foreach {lines number why} {
        {{user bob on nosuch}} 1 {Error in user declaration 'bob': Syntax error}
        {{user bob on} {user bob off}} 2\
            {Error in user declaration 'bob': Duplicate user found. A user can only be defined once in config files}
        {user} 1 {Bad directive or wrong number of arguments}
    } {
        set text "\\*\\*\\* FATAL CONFIG FILE ERROR (Version *) \\*\\*\\*\nReading the configuration file, at\
            line $number\n"
        append text ">>> '[lindex $lines end]'\n$why\n"
        refuses_to_start $text [conf [join $lines \n]\n]
    }
    foreach {text why} {
        "user bob +nosuch" "Error loading ACL rule '+nosuch' for the user named 'bob': Unknown command or category\
            name in ACL"
        "aclfile x\nuser bob on"\
            "Configuring Valkey with users defined in valkey.conf and at the same setting an ACL file path is invalid."
        "aclfile /nosuch.acl" "Aborting Valkey startup because of ACL errors: Error loading ACLs, opening file\
            '/nosuch.acl': No such file or directory"
    } {
        set got [run_server [conf "port 0\n$text\n"]]
        assert_equal 1 [dict get $got code]
        assert_match "*$why*" [dict get $got out]
    }
}

start_server {tags {acl}} {
    test "commands are checked in the database that a queued SELECT will have selected" {
        r acl setuser queuer on nopass "(db=0,1 +@all -@read ~*)" "(db=2 +@all -@write ~*)"
        set c [new_client]
        $c auth queuer x
        $c multi
        foreach {command expected} {
            {set k v} +QUEUED* {get k} -NOPERM*
        } {assert_match $expected [$c -typed {*}$command]}
        $c discard
        $c multi
        foreach command {{set k v} {select 2} {get k} {select 99} {get k} {select x} {get k} {select 0} {set k v}} {
            assert_equal +QUEUED [$c -typed {*}$command] $command
        }
        $c exec
        # A rejected command discards the transaction and its selected database.
        $c multi
        foreach {command expected} {{select 2} +QUEUED* {set k v} -NOPERM* {get k} -NOPERM* {set k v} +QUEUED*} {
            assert_match $expected [$c -typed {*}$command] $command
        }
        $c discard
        $c -close
        r acl deluser queuer
    }

    test "the log and CLIENT LIST name the denied command, not the one before it" {
        r acl setuser denied on nopass ~* +@all -get
        set c [new_client]
        $c auth denied x
        set id [$c client id]
        catch {$c get k}
        assert_match "* cmd=get *" [dict get [lindex [r acl log 1] 0] client-info]
        assert_match "* cmd=get *" [r client list id $id]
        $c -close
        r acl deluser denied
    }

    test "a client that has to authenticate learns nothing about commands" {
        r config set requirepass secret
        set c [new_client]
        foreach command {nosuch {nosuch a b} get {get a b c} {client nosuch} {client list}} {
            assert_equal "-NOAUTH Authentication required." [$c -typed {*}$command] $command
        }
        $c auth secret
        r auth secret
        r config set requirepass ""
    }

    test "passwords of any bytes" {
        set password "a\x00b\xff\x00"
        r config set requirepass $password
        set c [new_client]
        foreach wrong [list a "a\x00b\xff" "a\x00b\xff\x01"] {
            assert_match -WRONGPASS* [$c -typed auth $wrong]
        }
        assert_equal +OK [$c -typed auth $password]
        assert_equal $password [lindex [$c config get requirepass] 1]
        $c config set requirepass "" primaryauth $password
        assert_equal $password [lindex [$c config get primaryauth] 1]
        $c config set primaryauth ""
    }
}

start_server {config {{rename-command get fetch} {rename-command hget ""} {rename-command config cfg}} tags {acl}} {
    test "ACL rules name commands as they are without rename-command" {
        r acl setuser u on nopass ~* +@all -get -config|set
        r acl setuser u +hget
        assert_error_like "*Unknown command*" {r acl setuser u -fetch}
        assert_error_like "*Unknown command*" {r acl setuser u +cfg|get}
        r auth u x
        assert_match "-NOPERM * 'get' command" [r -typed fetch k]
        assert_match "-NOPERM * 'config|set' command" [r -typed cfg set maxmemory 0]
        assert_equal {maxmemory 0} [r cfg get maxmemory]
    }
}
