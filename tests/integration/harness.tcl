# The harness itself, on which the other suites rely.

start_server {} {
    test "plain and typed replies" {
        r set k v
        assert_equal v [r get k]
        assert_typed {$v} get k
        assert_typed {nil$} get none
        assert_typed +OK set k v
        assert_typed :1 exists k
        assert_typed {* $v nil$} mget k none
        assert_typed "-ERR unknown command 'nosuch', with args beginning with: 'a' " nosuch a
    }

    test "RESP3 replies keep their types" {
        set c [new_client -resp 3]
        assert_reply $c _ get none
        assert_reply $c {% $maxclients $10000} config get maxclients
    }

    test "an error reply is a Tcl error" {
        assert_error_like "ERR value is not*" {r set l x; r incr l}
        assert_error "ERR syntax error" {r set a b c}
    }

    test "deferring clients keep the order of replies" {
        set c [new_client -deferring 1]
        for {set i 0} {$i < 100} {incr i} {$c echo $i}
        for {set i 0} {$i < 100} {incr i} {assert_equal $i [$c -read]}
    }

    test "strings are binary safe" {
        set all ""
        for {set i 0} {$i < 256} {incr i} {append all [format %c $i]}
        r set bin $all
        assert_equal $all [r get bin]
        assert_equal 256 [r strlen bin]
    }

    test "raw reads and writes" {
        set c [new_client]
        $c -write "PING\r\n"
        assert_equal "+PONG" [$c -readline]
        $c -write "ECHO ab\r\n"
        assert_equal "\$2\r\nab\r\n" [$c -readraw 8]
    }

    test "the log is there" {
        wait_for_log "Ready to accept connections"
    }

    test "a server can be started again on its data" {
        r config set save ""
        restart_server
        assert_equal PONG [r ping]
    }

    test "INFO fields and options can be read" {
        assert_equal 10000 [config_get maxclients]
        with_config {maxclients 9000} {
            assert_equal 9000 [config_get maxclients]
        }
        assert_equal 10000 [config_get maxclients]
        assert {[info_field server process_id] == [srv pid]}
        assert_equal "" [info_field server no_such_field]
    }

    start_server {overrides {maxclients 77}} {
        test "servers nest" {
            assert_equal 77 [config_get maxclients]
            assert_equal {maxclients 10000} [r -1 config get maxclients]
            assert {[srv port] != [srv -1 port]}
        }
    }
}

start_server {overrides {requirepass {two words}} auth {two words}} {
    test "values with blanks reach the server" {
        assert_equal {two words} [config_get requirepass]
    }
}
