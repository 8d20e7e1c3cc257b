# valkey-cli --ldb and --ldb-sync-mode: the debugger of scripts, from lines of standard input and at a terminal.

set cli [file join [expr {[info exists ::env(TOOLS)] ? $::env(TOOLS) : "$::root/src"}] valkey-cli]
set script [file join $::unit_dir script.lua]
set terminal [tool terminal]
write_file $script "local a = KEYS\[1\]
redis.call('set', a, ARGV\[1\])
redis.debug('shown', a)
return {a, redis.call('get', a)}
"
set banner "Lua debugging session started, please use:
quit    -- End the session.
restart -- Restart the script in debug mode again.
help    -- Show Lua script debugging commands.

"

# Debugs a script with these lines: {code out err}, colours as <number>.
proc debugger {lines args} {
    set got [run -stdin [join $lines \n]\n $::cli -h [srv host] -p [srv port] {*}$args]
    return [list [dict get $got code] [regsub -all {\x1b\[([0-9;]+)m} [dict get $got out] {<\1>}] [dict get $got err]]
}
proc grey {line} {return "<0;37;49>$line<0>\n"}
proc yellow {line} {return "<0;33;49>$line<0>\n"}

start_server {tags {scripting}} {
    set first "[grey "* Stopped at 1, stop reason = step over"][yellow "-> 1   local a = KEYS\[1\]"]"
    set second "[grey "* Stopped at 2, stop reason = step over"][yellow "-> 2   redis.call('set', a, ARGV\[1\])"]"

    test "a session is shown in colours, and its changes are dropped" {
        lassign [debugger {s s {redis get k1} foo {break 4} continue {print a} c {exists k1}} --ldb \
            --eval $script k1 , v1] code out err
        assert_equal {0 {}} [list $code $err]
        set begin "$banner$first$second<0;32;49><command> set k1 v1<0>\n<0;36;49><reply> \"+OK\"<0>\n"
        append begin [grey "* Stopped at 3, stop reason = step over"] [yellow "-> 3   redis.debug('shown', a)"]
        append begin "<0;32;49><command> get k1<0>\n<0;36;49><reply> \"v1\"<0>\n"
        append begin "<0;31;49><error> Unknown debugger command or wrong number of arguments.<0>\n"
        assert_equal $begin [string range $out 0 [string length $begin]-1]
        assert_match "*<1;37;49>  #4   return {a, redis.call('get', a)}<0>\n*" $out
        assert_match "*<1;37;49><debug> line 3: shown, k1<0>\n*<0;35;49><value> k1<0>\n*" $out
        assert_match "*<0>\n\n1) \"k1\"\n2) \"v1\"\n\n(Lua debugging session ended -- dataset changes rolled\
            back)\n\n(integer) 0\n" $out
    }

    test "--ldb-sync-mode keeps the changes" {
        lassign [debugger {c {get k2}} --ldb-sync-mode --eval $script k2 , v2] code out err
        assert_equal {0 {}} [list $code $err]
        set begin $banner$first
        assert_equal $begin [string range $out 0 [string length $begin]-1]
        assert_match "*\n1) \"k2\"\n2) \"v2\"\n\n(Lua debugging session ended)\n\n\"v2\"\n" $out
    }

    test "restart begins again, within a session and after it, with the script as it is then" {
        lassign [debugger {s restart s abort ping restart quit} --ldb --eval $script k , v] code out err
        assert_equal {0 {}} [list $code $err]
        assert_equal "$banner$first$second\n$banner$first$second\n(error) ERR script aborted for user request script:\
            on @user_script:2.\n\n[
            ](Lua debugging session ended -- dataset changes rolled back)\n\nPONG\n\n$banner$first" $out
        assert_match "Use 'restart' only in Lua debugging mode.\n" [lindex [debugger restart] 1]
    }

    test "the code of eval is the rest of the line" {
        lassign [debugger {{eval "it's"} {e  return 1 + 1}\
            {e "unbalanced} eval quit} --ldb --eval $script k , v] code out err
        assert_equal "$banner$first<0;35;49><retval> it's<0>\n<0;35;49><retval> 2<0>\n[
            ]<0;37;49>Error compiling code: ldb_eval:1: unfinished string near '<eof>'<0>\n[
            ]<0;31;49><error> Unknown debugger command or wrong number of arguments.<0>\n" $out
    }

    test "a script that does not compile, a file that is missing, and options without --eval" {
        set bad [file join $::unit_dir bad.lua]
        write_file $bad "x = = 1\n"
        lassign [debugger {} --ldb --eval $bad] code out err
        assert_equal "$banner\nEval debugging session can't start:\n(error) ERR Error compiling script (new function):\
            user_script:1: unexpected symbol near '='\n" $out
        lassign [debugger {} --ldb --eval $bad.missing] code out err
        assert_equal [list 1 "Can't open file '$bad.missing': No such file or directory\n"] [list $code $err]
        foreach option {--ldb --ldb-sync-mode} {
            lassign [debugger {} $option ping] code out err
            assert_equal 1 $code
            assert_match "Options --ldb and --ldb-sync-mode require --eval.\nTry *valkey-cli\
                --help for more information.\n" $err
        }
    }

    test "a session that the server ends" {
        set many [file join $::unit_dir many.lua]
        write_file $many "while true do local a = 1 end\n"
        lassign [debugger {{redis nosuch} {redis client kill type normal} quit} --ldb --eval $many] code out err
        assert_match "*<error> This Valkey command is not allowed from script*" $out
        assert_equal PONG [r ping]
    }

    test "the prompt of a session" -needs {tool terminal} {
        set got [run $::terminal "prompt=> " "s\\r" "abort\\r" "ping\\r" "quit\\r" -- env HOME=$::unit_dir TERM=xterm \
            $::cli -h [srv host] -p [srv port] --ldb --eval $::script k , v]
        regsub -all {\x1b\[[0-9;]*[A-Za-z]} [string map {\r\n \n} [dict get $got out]] "" screen
        assert_equal 0 [dict get $got code] [printable $screen 2000]
        assert_match "*lua debugger> *s*Stopped at 2*lua debugger> *abort*session ended*[srv port]> *ping*\nPONG\n*" \
            $screen
    }
}
