# COMMAND and its subcommands: the server's description of its commands.

start_server {tags {commands}} {
    test "COMMAND COUNT is the number of COMMAND's entries" {
        set n [r command count]
        assert_equal $n [llength [r command]]
        assert_equal $n [llength [r command info]]
        assert_range $n 30 2000
        set top 0
        foreach name [r command list] {if {![string match *|* $name]} {incr top}}
        assert_equal $n $top
    }

    test "COMMAND INFO gives name, arity, flags, keys, categories, tips, key specs, subcommands" {
        assert_typed {* {* $get :2 {* +readonly +fast} :1 :1 :1 {* +@read +@string +@fast} *\
            {* {* $flags {* +RO +access} $begin_search {* $type $index $spec {* $index :1}} $find_keys\
            {* $type $range $spec {* $lastkey :0 $keystep :1 $limit :0}}}} *}} command info get
        assert_typed {* {* $ping :-1 {* +fast} :0 :0 :0 {* +@fast +@connection}\
            {* $request_policy:all_shards $response_policy:all_succeeded} * *}} command info ping
        assert_typed {* {* $mset :-3 {* +write +denyoom} :1 :-1 :2 {* +@write +@string +@slow}\
            {* $request_policy:multi_shard $response_policy:all_succeeded}\
            {* {* $flags {* +OW +update} $begin_search {* $type $index $spec {* $index :1}} $find_keys\
            {* $type $range $spec {* $lastkey :-1 $keystep :2 $limit :0}}}} *}} command info mset
    }

    test "COMMAND INFO of subcommands, unknown names, other letter case" {
        assert_typed {* {* $config|get :-3 {* +admin +noscript +loading +stale} :0 :0 :0\
            {* +@admin +@slow +@dangerous} * * *}} command info config|get
        assert_typed {* nil$} command info nosuch
        assert_typed {* nil$} command info foo|bar
        assert_typed {* nil$} command info client|kill|x
        set reply [r -typed command info GET nosuch Ping]
        assert_equal 4 [llength $reply]
        assert_equal nil$ [lindex $reply 2]
        assert_equal {$get} [lindex $reply 1 1]
        assert_equal {$ping} [lindex $reply 3 1]
    }

    test "COMMAND INFO of a container lists its subcommands" {
        set info [lindex [r command info config] 0]
        assert_equal {config -2} [lrange $info 0 1]
        assert_equal {config|get config|help config|resetstat config|rewrite config|set} \
            [lsort [lmap s [lindex $info 9] {lindex $s 0}]]
    }

    test "COMMAND INFO in RESP3 uses sets and maps" {
        set c [new_client -resp 3]
        assert_reply $c {* {* $get :2 {~ +readonly +fast} :1 :1 :1 {~ +@read +@string +@fast} ~\
            {~ {% $flags {~ +RO +access} $begin_search {% $type $index $spec {% $index :1}} $find_keys\
            {% $type $range $spec {% $lastkey :0 $keystep :1 $limit :0}}}} *}} command info get
        assert_reply $c {* _} command info nosuch
    }

    test "COMMAND LIST and its filters" {
        set all [r command list]
        foreach name {get set config|get client|list ping} {assert_in $name $all}
        assert_same_elements {config|set config|get config|help config|rewrite config|resetstat} \
            [r command list filterby pattern config|*]
        assert_equal get [r command list filterby pattern get]
        assert_equal get [r command list filterby pattern GET]
        assert_equal {} [r command list filterby pattern nosuch*]
        assert_in config|get [r command list FILTERBY ACLCAT admin]
        assert_in get [r command list filterby aclcat fast]
        assert_equal {} [r command list filterby aclcat nosuch]
        assert_equal {} [r command list filterby module nosuch]
        replies {
            {command list filterby} "-ERR syntax error"
            {command list filterby pattern} "-ERR syntax error"
            {command list filterby foo bar} "-ERR syntax error"
            {command list foo} "-ERR syntax error"
            {command list filterby pattern a b} "-ERR syntax error"
        }
    }

    test "COMMAND DOCS has summary, since, group, complexity, arguments" {
        set d [dict get [r command docs get] get]
        foreach field {summary since group complexity arguments} {assert {[dict exists $d $field]}}
        assert_equal 1.0.0 [dict get $d since]
        assert_equal string [dict get $d group]
        assert_equal O(1) [dict get $d complexity]
        assert_equal [typed_form {* {* $name $key $type $key $display_text $key $key_spec_index :0}}] \
            [dict get [lrange [lindex [r -typed command docs get] 2] 1 end] {$arguments}]
        assert_typed * command docs nosuch
        assert_equal [r command count] [expr {[llength [r command docs]] / 2}]
        assert_equal {get set} [lsort [dict keys [r command docs get set nosuch]]]
        assert_equal config|get [dict keys [r command docs config|get]]
        assert {[dict exists [dict get [r command docs config] config] subcommands]}
    }

    test "COMMAND DOCS shows history and flags" {
        set d [dict get [r command docs set] set]
        assert_morethan [llength [dict get $d history]] 3
        assert_equal syscmd [dict get [r command docs pfdebug] pfdebug doc_flags]
        assert {![dict exists [r command docs getset] getset doc_flags]}
    }

    test "COMMAND DOCS is a map in RESP3" {
        set c [new_client -resp 3]
        set t [$c -typed command docs get]
        assert_equal {% {$get} %} [list [lindex $t 0] [lindex $t 1] [lindex $t 2 0]]
        assert_reply $c % command docs nosuch
    }

    test "every command has complete attributes" {
        foreach info [r command] {
            lassign $info name arity flags first last step cats tips specs subs
            assert {$arity != 0} $name
            assert {[string is integer -strict $first] && [string is integer -strict $last] &&\
                [string is integer -strict $step]} $name
            assert {("@fast" in $cats) != ("@slow" in $cats)} "$name has the categories $cats"
            assert {("fast" in $flags) == ("@fast" in $cats)} "$name has the flags $flags and the categories $cats"
            if {$first != 0} {assert {$step > 0} $name; assert {[llength $specs] > 0} $name}
            if {"write" in $flags} {assert {"@write" in $cats && "readonly" ni $flags} $name}
            if {"readonly" in $flags} {
                assert {"@read" in $cats || "@scripting" in $cats} "$name has the categories $cats"
            }
            if {"admin" in $flags} {assert {"@admin" in $cats && "@dangerous" in $cats} $name}
            foreach s $subs {assert_match "$name|*" [lindex $s 0]}
        }
    }

    test "every command has complete documentation" {
        dict for {name d} [r command docs] {
            foreach field {summary since group} {
                assert {[dict exists $d $field] && [dict get $d $field] ne ""} "$name has no $field"
            }
            assert_regexp {^\d+\.\d+\.\d+$} [dict get $d since] $name
        }
    }

    test "a wrong number of arguments is refused by every command that has a fixed one" {
        foreach info [r command] {
            lassign $info name arity flags
            if {$arity > 1} {
                assert_typed "-ERR wrong number of arguments for '$name' command" $name {*}[lrepeat $arity x]
                if {$arity > 2} {
                    assert_typed "-ERR wrong number of arguments for '$name' command" $name \
                        {*}[lrepeat [expr {$arity - 2}] x]
                }
            } elseif {$arity < -1} {
                set few [expr {-$arity - 2}]
                assert_typed "-ERR wrong number of arguments for '$name' command" $name {*}[lrepeat $few x]
            }
        }
    }

    test "every HELP subcommand helps" {
        foreach name [r command list filterby pattern *|help] {
            set container [lindex [split $name |] 0]
            if {$container eq "cluster"} continue
            set help [r $container help]
            assert_equal "[string toupper $container] <subcommand> \[<arg> \[value] \[opt] ...]. Subcommands are:" \
                [lindex $help 0]
            assert_equal "HELP" [lindex $help end-1]
            assert_equal "    Print this help." [lindex $help end]
            assert_typed "-ERR unknown subcommand 'nosuch'. Try [string toupper $container] HELP." $container nosuch
        }
    }

    test "COMMAND GETKEYS" {
        replies {
            {command getkeys get a} {* $a}
            {command getkeys mset a 1 b 2} {* $a $b}
            {command getkeys del a b c} {* $a $b $c}
            {command getkeys copy a b} {* $a $b}
            {command getkeys lcs a b} {* $a $b}
            {command getkeys object encoding foo} {* $foo}
            {command getkeys SET a b ex 10} {* $a}
            {command getkeys ping} "-ERR The command has no key arguments"
            {command getkeys config get x} "-ERR The command has no key arguments"
            {command getkeys nosuch} "-ERR Invalid command specified"
            {command getkeys get} "-ERR Invalid number of arguments specified for command"
            {command getkeys get a b} "-ERR Invalid number of arguments specified for command"
        }
    }

    test "COMMAND GETKEYSANDFLAGS" {
        replies {
            {command getkeysandflags get a} {* {* $a {* +RO +access}}}
            {command getkeysandflags set a b} {* {* $a {* +OW +update}}}
            {command getkeysandflags set a b get} {* {* $a {* +RW +access +update}}}
            {command getkeysandflags rename a b} {* {* $a {* +RW +access +delete}} {* $b {* +OW +update}}}
            {command getkeysandflags append a b} {* {* $a {* +RW +insert}}}
            {command getkeysandflags mget a b} {* {* $a {* +RO +access}} {* $b {* +RO +access}}}
            {command getkeysandflags unlink a} {* {* $a {* +RM +delete}}}
            {command getkeysandflags ping} "-ERR The command has no key arguments"
        }
        assert_reply [new_client -resp 3] {* {* $a {~ +OW +update}}} command getkeysandflags set a b
    }

    test "COMMAND refuses what it does not know" {
        replies {
            {command foo} "-ERR unknown subcommand 'foo'. Try COMMAND HELP."
            {command count x} "-ERR wrong number of arguments for 'command|count' command"
            {command getkeys} "-ERR wrong number of arguments for 'command|getkeys' command"
            {command getkeysandflags} "-ERR wrong number of arguments for 'command|getkeysandflags' command"
            {command help x} "-ERR wrong number of arguments for 'command|help' command"
        }
    }
}

start_server {config {{rename-command GETSET ""} {rename-command ECHO repeat} {rename-command GET get}}\
    tags {commands}} {
    test "rename-command removes and renames" {
        replies {
            {getset a b} "-ERR unknown command 'getset', with args beginning with: 'a' 'b' "
            {echo a} "-ERR unknown command 'echo', with args beginning with: 'a' "
            {repeat a} {$a}
            {get a} nil$
        }
    }
}
