# Objects that scripts cannot access or change, and resources that they cannot exhaust.

start_server {tags {scripting}} {
    test "globals and libraries are read-only" {
        set refused "Attempt to modify a readonly table script: on @user_script:1."
        foreach script {{x = 1} {_G.x = 1} {redis.x = 1} {redis.call = 1} {string.foo = 1} {KEYS = 1}\
            {cjson.encode = nil} {math.random = nil}
            {getmetatable('').__index = nil} {getmetatable('').foo = 1} {getmetatable(_G).__index = nil}\
                {function f() end}} {
            assert_error "ERR user_script:1: $refused" {r eval $script 0}
        }
        foreach script {{rawset(_G, 'x', 1)} {rawset(redis, 'call', 1)} {setmetatable(_G, {})}\
            {setmetatable(string, nil)} {table.insert(_G, 1)}} {
            assert_error "ERR $refused" {r eval $script 0}
        }
        assert_equal ok [r eval {return ({pcall(function() redis.call = nil end)})[1] and 'changed' or 'ok'} 0]
        assert_equal X [r eval {return ('x'):upper()} 0]
    }

    test "a protected table that is raised as an error is not changed" {
        foreach table {redis string math cjson bit _G KEYS getmetatable('') getmetatable(_G) os} {
            assert_equal 1 [catch {r eval "error($table)" 0} reply] $table
            assert_match "ERR *" $reply $table
            assert_equal {nil nil nil} \
                [r eval "local t = $table return {type(rawget(t, 'err')), type(rawget(t, 'source')), type(rawget(t,\
                'line'))}" 0] $table
        }
        r function load "#!lua name=looks\nredis.register_function('look', function() return {type(redis.err),\
            type(redis.source), type(redis.line)} end)"
        assert_equal {nil nil nil} [r fcall look 0]
        r function flush
    }

    test "an error whose fields raise it again ends" {
        foreach call {error(t) {return pcall(error, t)}} {
            assert_equal 1 [catch {r eval "local t t = setmetatable({}, {__index = function() error(t) end}) $call" 0} \
                reply]
            assert_match "ERR *" $reply
        }
        assert_equal PONG [r ping]
    }

    test "read-only tables look like tables" {
        assert_equal 1 [r eval {
            local n = 0
            for k, v in pairs(redis) do n = n + (k == 'call' and type(v) == 'function' and 1 or 0) end
            for k, v in next, string do n = n + (k == 'rep' and 10 or 0) end
            return n == 11 and next(math) ~= nil and rawget(_G, 'redis') == redis and rawget(_G, 'nosuch') == nil
        } 0]
        assert_equal 1 [r eval {return getmetatable(redis) == nil and type(getmetatable(_G).__index) == 'function'} 0]
        assert_equal 1 [r eval {return getmetatable('').__index == string} 0]
        assert_equal 1 [r eval {return redis == server} 0]
    }

    test "a script leaves nothing for the next one" {
        r eval {ARGV[2] = 'left' KEYS.x = 1} 1 k a
        assert_equal {0 0} [r eval {return {#KEYS, #ARGV}} 0]
        r eval {setmetatable(KEYS, {__index = function() return 'left' end})} 0
        assert_equal "" [r eval {return KEYS[1]} 0]
        r eval {collectgarbage('stop')} 0
        set before [info_field memory used_memory_vm_eval]
        for {set i 0} {$i < 20} {incr i} {r eval {local t = {} for i = 1, 10000 do t[i] = {} end} 0}
        assert_lessthan [info_field memory used_memory_vm_eval] [expr {$before + 20000000}]
    }

    test "there is no way to files, processes, modules, environments and bytecode" {
        foreach name {io debug package require module dofile loadfile print newproxy getfenv setfenv} {
            assert_error_like "ERR *nonexistent global variable '$name'*" {r eval "return $name" 0}
        }
        assert_equal 1 [r eval {local n = 0 for k in pairs(os) do n = n + 1 end return n == 1 and os.clock() > 0} 0]
        assert_error_like "*unexpected symbol near 'char(27)'*" {r eval "\x1bLua" 0}
        foreach script {
            {return loadstring(string.dump(function() return 1 end))}
            {local s = string.dump(function() return 1 end) local n = 0 return load(function() n = n + 1 return n <=\
                #s and s:sub(n, n) or nil end)}
            {local s = string.dump(function() return 1 end) local n = 0 return load(function() n = n + 1 return n == 1\
                and s or nil end)}
        } {
            assert_equal "" [r eval $script 0]
        }
        assert_equal 5 [r eval {return loadstring('return 5')()} 0]
        assert_equal 5 [r eval {local n = 0 return load(function() n = n + 1 return ({'return ', '5'})[n] end)()} 0]
    }

    test "recursion ends with an error" {
        assert_error_like "ERR *stack overflow*" {r eval {local function f() return f() + 1 end return f()} 0}
        assert_error_like "ERR *" \
            {r eval {local function f(n) return coroutine.wrap(function() return f(n + 1) end)() end return f(1)} 0}
        assert_error_like "ERR *pattern too complex*" {r eval {return (('a'):rep(100000)):match(('a?'):rep(100000))} 0}
        assert_equal 9000 [r eval {return #(('a'):rep(9000)):match(('a?'):rep(5000) .. '.*')} 0]
        assert_error_like "ERR *excessive nesting*" {r eval {local t = {} t[1] = t return cjson.encode(t)} 0}
        assert_error_like "ERR *too many nested*" {r eval {return cjson.decode(('['):rep(100000))} 0}
        assert_error_like "ERR *stack overflow*" {r eval {return cmsgpack.unpack(('\145'):rep(100000))} 0}
        assert_equal 17 [r eval {local t = {} t[1] = t return #cmsgpack.pack(t)} 0]
        set c [new_client]
        $c -send eval {local t = {} t[1] = t return t} 0
        catch {$c -read}
        $c -close
        assert_equal PONG [r ping]
    }

    test "cjson" {
        foreach {script reply} {
            {return cjson.encode({1, 2, 3})} {[1,2,3]}
            {return cjson.encode({a = {1, {b = 2}}})} {{"a":[1,{"b":2}]}}
            {return cjson.encode({})} {{}}
            {return cjson.encode(cjson.null)} null
            {return cjson.encode(1 / 3)} 0.33333333333333
            {return cjson.encode('"\\/\8\t\n\12\r\1\127')} {"\"\\\/\b\t\n\f\r\u0001\u007f"}
            {return cjson.decode('[1,{"a":"\\u20ac"}]')[2].a} "\u20ac"
            {local s = cjson.decode('"\\ud83d\\ude00"') return ('%x %x %x %x'):format(s:byte(1, -1))} "f0 9f 98 80"
            {return tostring(cjson.decode('[1,null]')[2])} "userdata: (nil)"
            {return #cjson.decode('[[],{},true,false,-1.5e3]')} 5
        } {
            assert_equal $reply [encoding convertfrom utf-8 [r eval $script 0]] $script
        }
        foreach {script error} {
            {return cjson.encode(0/0)} "Cannot serialise number: must not be NaN or Inf"
            {return cjson.encode({1, [100] = 2})} "Cannot serialise table: excessively sparse array"
            {return cjson.encode(print ~= nil)} "Script attempted to access nonexistent global variable 'print'"
            {return cjson.encode({[true] = 1})} "Cannot serialise boolean: table key must be a number or string"
            {return cjson.decode('x')} "Expected value but found invalid token at character 1"
            {return cjson.decode('[1')} "Expected comma or array end but found T_END at character 3"
            {return cjson.decode('{"a" 1}')} "Expected colon but found T_NUMBER at character 6"
            {return cjson.decode('"a')} "Expected value but found unexpected end of string at character 3"
        } {
            assert_error "ERR user_script:1: $error script: on @user_script:1." {r eval $script 0}
        }
    }

    test "cmsgpack" {
        assert_equal 1 [r eval {
            local values = {1, -1, 127, 128, 255, 256, 65535, 65536, 2^32, -32, -33, -128, -129, -32769, -2^31\
                - 1, 1.5, 1.1, 'x', ('x'):rep(31),
                ('x'):rep(32), ('x'):rep(256), ('x'):rep(65536), true, false}
            for i, v in ipairs(values) do if cmsgpack.unpack(cmsgpack.pack(v)) ~= v then return i * -1 end end
            local t = cmsgpack.unpack(cmsgpack.pack({1, {a = 'b'}, {}}))
            return t[1] == 1 and t[2].a == 'b' and #t[3] == 0
        } 0]
        assert_equal {1 2 3} [r eval {return {cmsgpack.unpack(cmsgpack.pack(1, 2, 3))}} 0]
        assert_equal {1 1} [r eval {return {cmsgpack.unpack_one(cmsgpack.pack(1, 2, 3))}} 0]
        assert_equal {2 1 2} [r eval {return {cmsgpack.unpack_limit(cmsgpack.pack(1, 2, 3), 2)}} 0]
        foreach {bytes error} {{\146\1} "Missing bytes in input." {\193} "Bad data format in input."\
            {\221\255\255\255\255} "Missing bytes in input."} {
            assert_error "ERR user_script:1: $error script: on @user_script:1." \
                {r eval "return cmsgpack.unpack('$bytes')" 0}
        }
    }

    test "struct and bit" {
        assert_equal "\0\0\0\0\0\0\0\1\0\0\2ab\0" [r eval {return struct.pack('>lI3s', 1, 2, 'ab')} 0]
        assert_equal {1 -2 ab 300 9} \
            [r eval {return {struct.unpack('<bbBc0xh', struct.pack('<bbBc0xh', 1, -2, 2, 'ab', 300))}} 0]
        assert_equal 16 [r eval {return struct.size('!8bd')} 0]
        assert_error_like "*data string too short*" {r eval {return struct.unpack('i', 'a')} 0}
        assert_error_like "*integral size overflow*" {r eval {return struct.pack('I4294967294', 1)} 0}
        assert_equal {15 000000ff -1} [r eval {return {bit.band(255, 15), bit.tohex(255), bit.bnot(0)}} 0]
    }

    # Each script tries to change something that it must not access. Whatever it returns, the next script finds the
    # environment unchanged.
    proc assert_sandbox_is_whole {after} {
        assert_equal {function 1 PONG} \
            [r eval {return {type(redis.call), getmetatable('').__index == string and 1 or 0, redis.call('ping')}} 0] \
            $after
        foreach script {{return marked} {return _G.marked} {return redis.marked} {return ('').marked}\
            {return string.marked} {return math.marked}} {
            catch {r eval $script 0} found
            assert {$found eq "" || [string match "*nonexistent global variable 'marked'*" $found]} \
                "$script gives $found after $after"
        }
    }

    test "no attempt to change globals and libraries from within another context succeeds" {
        foreach script {
            {loadstring('marked = 1')()} {pcall(loadstring('marked = 1'))}\
                {load(function() local n = marked_source marked_source = nil return n end)}
            {coroutine.wrap(function() marked = 1 end)()}\
                {coroutine.resume(coroutine.create(function() _G.marked = 1 end))}
            {xpcall(function() error('x') end, function() marked = 1 end)}\
                {xpcall(function() marked = 1 end, function() redis.marked = 1 end)}
            {('x'):gsub('x', function() marked = 1 end)}\
                {('x'):gsub('x', setmetatable({}, {__index = function() string.marked = 'y' end}))}
            {table.sort({2, 1}, function() marked = 1 end)} {table.foreach({1}, function() marked = 1 end)}\
                {table.foreachi({1}, function() math.marked = 1 end)}
            {setmetatable({}, {__index = function() marked = 1 end}).x = nil return setmetatable({},\
                {__index = function() marked = 1 end}).x}
            {return tostring(setmetatable({}, {__tostring = function() marked = 1 return 'x' end}))}
            {error(setmetatable({}, {__tostring = function() marked = 1 return 'x' end}))}\
                {error(setmetatable({}, {__index = function() marked = 1 end}))}
            {return setmetatable({}, {__index = function() marked = 1 end})}\
                {return {err = setmetatable({}, {__tostring = function() marked = 1 end})}}
            {rawset(getmetatable(''), 'marked', 1)} {getmetatable('').__index.marked = 1}\
                {rawset(getmetatable('').__index, 'marked', 1)}
            {rawset(getmetatable(_G), '__index', nil)} {rawset(getmetatable(_G), '__newindex', nil)}\
                {setmetatable(getmetatable(_G), {__index = {marked = 1}})}
            {setmetatable(_G, {__index = {marked = 1}})} {setmetatable('', {__index = {marked = 1}})}\
                {setmetatable(_G._G, nil) marked = 1}
            {table.insert(_G, 1, 1)} {table.insert(string, 'marked')} {table.remove(redis)} {table.sort(_G)}\
                {string.marked = 1} {_G['marked'] = 1} {_G._G.redis.marked = 1}
            {local t = redis t.marked = 1} {for k, v in pairs(_G) do if type(v) == 'table' then v.marked = 1 end end}
            {for k, v in pairs(_G) do if type(v) == 'table' then pcall(rawset, v, 'marked', 1) end end}
            {for k, v in pairs(_G) do if type(v) == 'table' and getmetatable(v) then pcall(rawset, getmetatable(v),\
                '__index', {marked = 1}) end end}
            {next(_G)} {for k in next, _G do _G[k] = nil end} {for k in pairs(redis) do rawset(redis, k, nil) end}\
                {redis = nil} {_G = {}} {string = nil}
            {local f = redis.call redis.call = function() return 'marked' end} {cjson.decode = nil}\
                {cjson.null.marked = 1} {bit.marked = 1} {os.marked = 1}
        } {
            catch {r eval $script 0}
            assert_sandbox_is_whole $script
        }
    }

    test "the globals are those of Valkey" {
        assert_same_elements {ARGV KEYS _G _VERSION __redis__err__handler __server__err__handler assert bit cjson\
            cmsgpack collectgarbage coroutine error gcinfo
            getmetatable ipairs load loadstring math next os pairs pcall rawequal rawget rawset redis select server \
                setmetatable string struct table tonumber
            tostring type unpack xpcall} \
                [r eval {local t = {} for k in pairs(_G) do t[#t + 1] = k end table.sort(t) return t} 0]
        foreach name {execute exit getenv remove rename tmpname date time difftime setlocale} {
            assert_equal "" [r eval "return os.$name" 0]
        }
        assert_equal "" [r eval {return getmetatable(cjson.null)} 0]
        foreach form {{return string.dump and loadstring(string.dump(assert), 'x')} {return (loadstring('\27LuaQ\0'))}\
            {return (load(function() return nil end, '@/etc/passwd') or 1) == 1}} {
            catch {r eval $form 0} reply
            assert {$reply eq "" || [string match "ERR *" $reply]} "$form gives $reply"
        }
    }

    test "a range of unpack that overflows an integer is refused" {
        foreach range {{0, 2147483647} {-2147483648, 2147483647} {-2147483647, 2147483647} {-2147483648, -1}\
            {-2147483648, 0} {1, 8001}} {
            assert_error_like "*too many results to unpack*" {r eval "return unpack({1}, $range)" 0}
        }
        assert_equal 0 [r eval {return select('#', unpack({}, 1, -2147483648))} 0]
        assert_equal 2 [r eval {return select('#', unpack({}, 2147483646, 2147483647))} 0]
        assert_equal 7000 [r eval {return select('#', unpack({}, 1, 7000))} 0]
    }

    test "bit.tohex takes every number of digits" {
        foreach {digits reply} {-2147483648 FFFFFFFF 2147483648 FFFFFFFF 2^32+2^31 FFFFFFFF '-2147483648' FFFFFFFF
            -2147483647 FFFFFFFF 2147483647 ffffffff -4 FFFF 0 {}} {
            assert_equal $reply [r eval "return bit.tohex(-1, $digits)" 0] $digits
        }
        assert_error_like "*bad argument #2 to 'tohex' (number expected, got table)*" \
            {r eval {return bit.tohex(1, {})} 0}
    }

    test "the name of a chunk survives a collection while its reader runs" {
        # The interpreter calls a reader once more after its end, after it has created the name.
        foreach name {"" ", 'name\0of a chunk'"} shown {(load) {[string "name"]}} {
            set reply [r eval "
                local calls = 0
                local f = load(function()
                    calls = calls + 1
                    if calls == 2 then
                        collectgarbage() collectgarbage()
                        local t = {} for i = 1, 2000 do t\[i] = ('x'):rep(6) .. i % 10 .. i end
                        return 'error(1)'
                    end
                end$name)
                local ok, message = pcall(f)
                return {calls, message}" 0]
            assert_equal [list 3 "$shown:1: 1"] $reply
        }
    }

    test "what exhausts the interpreter is an error, and no more" {
        foreach {script error} {
            {return unpack({}, 1, 1e8)} "*too many results to unpack*"
            {return table.concat({}, 'x', 1, 2^30)} "*invalid value (nil) at index 1*"
            {return ('%999d'):format(1)} "*invalid format*"
            {return ('%s'):rep(300):format(1)} "*bad argument*"
            {local t = {} t.__index = t setmetatable(t, t) return t.x} "*loop in gettable*"
            {coroutine.yield(1)} "*yield*"
            {return tostring(setmetatable({}, {__tostring = function() return {} end}))} "*"
            {return ('x'):rep(100):gsub('.', function() error('inside') end)} "*inside*"
            {return loadstring(('('):rep(300) .. '1' .. (')'):rep(300))()} "*nil value*"
            {return struct.pack('i100', 1)} "*"
            {return struct.unpack('i4', 'abcd', 2^31)} "*"
            {return struct.unpack('i4', 'abcd', -1)} "*"
            {return cmsgpack.unpack_limit('\1\2', -1)} "*"
            {return cmsgpack.unpack(('\129\1'):rep(50000))} "*stack overflow*"
            {return cjson.decode(('\123"a":'):rep(50000))} "*too many nested*"
            {local function f(t, n) return n == 0 and t or f(setmetatable({}, {__index = t}), n\
                - 1) end return f({}, 300).missing} "*"
            {local t = {} for i = 1, 300 do t = setmetatable({}, {__index = function(_, k) return t[k .. 'x'] end})\
                end return t.a} "*"
            {return select(-100, 1)} "*index out of range*"
            {return ('x'):rep(10, 'y', 'z'):byte(1, 1e9)} "*"
            {local f = function(...) return select('#', ...) end return f(unpack({}, 1, 7999))} "*"
            {xpcall(error, function() error('again') end) error('end')} "*end*"
            {error()} "*"
            {error(nil)} "*"
            {error(function() end)} "*"
            {error(coroutine.create(function() end))} "*"
        } {
            catch {r eval $script 0} reply
            assert_match $error $reply $script
            assert_equal PONG [r ping]
        }
        assert_sandbox_is_whole "all of them"
    }

    test "many coroutines, closures and tables leave nothing behind" {
        r eval {collectgarbage()} 0
        set before [info_field memory used_memory_vm_eval]
        foreach script {{for i = 1, 20000 do coroutine.create(function() return i end) end}\
            {for i = 1, 5000 do coroutine.wrap(function(x) coroutine.yield(x) end)(i) end}
            {local t = {} for i = 1, 100000 do t = {t} end} {local t = {} for i = 1, 100000 do t['k' .. i] = i end}} {
            r eval $script 0
        }
        r eval {collectgarbage() collectgarbage()} 0
        assert_lessthan [info_field memory used_memory_vm_eval] [expr {$before + 20000000}]
    }
}
