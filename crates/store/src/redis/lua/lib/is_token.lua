-- Whether this is a token by the grammar.
local function is_token(token)
  -- Visible ASCII without ; , " \ { and }.
  return #token >= 8 and #token <= 256 and not string.find(token, '[^!#-+%-.-:<-[%]^-z|~]')
end
