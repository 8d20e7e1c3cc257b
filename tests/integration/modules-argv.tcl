# Modules: CallArgv, whose replies go to functions, and the symbols VM_name. The module is tests/modules/argv.c.

start_server {overrides {enable-module-command yes enable-debug-command yes} tags {modules}} {
    r module load [file join $::root build modules argv.so]
    # Flags of CallArgv.
    set resp3 8; set user 32; set no_writes 128; set errors 256; set dry_run 1024; set block 2048

    test "each type of a reply has a function" {
        foreach {expected flags command} [list \
            simple=PONG 0 ping \
            bulk=hello 0 {ping hello} \
            null-string 0 {get nokey} \
            null $resp3 {get nokey} \
            {[2 null-string null-string ]} 0 {mget a b} \
            {|1 bulk=key-popularity [2 bulk=key:123 integer=90 ] | bulk=Some real reply following the attribute} \
                $resp3 {debug protocol attrib} \
            "{3 integer=0 bool=0 integer=1 bool=1 integer=2 bool=0 }" $resp3 {debug protocol map} \
            {(3 integer=0 integer=1 integer=2 )} $resp3 {debug protocol set} \
            double=3.141 $resp3 {debug protocol double} \
            big=1234567999999999999999999999999999999 $resp3 {debug protocol bignum} \
            "verbatim-txt=This is a verbatim\nstring" $resp3 {debug protocol verbatim} \
            null-array 0 {blpop x 0.01} \
            "error=ERR wrong number of arguments for 'get' command" $errors get] {
            assert_equal $expected [r argv.call $flags none {*}$command]
        }
        assert_equal "" [r argv.call 0 null ping] ;# no functions at all
    }

    test "the function that gets the protocol decides whether the reply is parsed" {
        assert_equal raw=7:+PONG [r argv.call 0 0 ping]
        assert_equal {raw=7:+PONG simple=PONG} [r argv.call 0 1 ping]
    }

    test "a command that does not run has no reply, and errno says why" {
        assert_equal {broken errno=2} [r argv.call 0 none nosuch]
        assert_equal {broken errno=22} [r argv.call 0 none get]
        assert_equal {broken errno=28} [r argv.call $no_writes none set a b]
        assert_equal raw=0: [r argv.call $dry_run 0 set a b]
        assert_equal {raw=0: errno=22} [r argv.call $dry_run 0 set a]
        assert_equal 0 [r exists a]
    }

    test "a command that waits replies later, unless it is aborted" {
        assert_equal blocked [r argv.call $block 1 blpop list 0]
        assert_equal blocked [r argv.later]
        r rpush list a
        assert_equal {blocked raw=21:*2 [2 bulk=list bulk=a ]} [r argv.later]
        r argv.call $block none blpop list 0
        assert_equal 0 [r argv.abort]
        assert_equal 1 [r rpush list a]
        assert_equal blocked [r argv.later]
    }

    test "ReplyRaw passes a reply on, and an error is no failure of the command" {
        assert_equal PONG [r argv.raw ping]
        assert_error "ERR wrong number of arguments for 'get' command" {r argv.raw get}
        assert_match "*cmdstat_argv.raw:calls=2,*failed_calls=0*" [r info commandstats]
    }
}
