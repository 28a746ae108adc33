/** Types and functions that fields and statements of the program use. */
export const values = [
  // Types of the fields Range_Time_NO_TZ and Range_Time.
  'create type svc_timerange as range (subtype = time)',
  'create type svc_timetzrange as range (subtype = timetz)',
  // The default of SUID fields: 12 characters of an alphabet without look-alikes, about 58 bits.
  `create function svc_short_id() returns text language sql volatile as $$
     select string_agg(substr('23456789abcdefghjkmnpqrstuvwxyz', 1 + get_byte(bytes, i) % 31, 1), '')
     from (select decode(replace(gen_random_uuid()::text, '-', ''), 'hex') as bytes) s, generate_series(0, 11) i
   $$`,
  // The default of TOKEN fields: 9 characters of the same alphabet, about 44 bits, without bytes 6 and 8 of the UUID,
  // which are not random.
  `create function svc_token() returns text language sql volatile as $$
     select string_agg(substr('23456789abcdefghjkmnpqrstuvwxyz', 1 + get_byte(bytes, i) % 31, 1), '')
     from (select decode(replace(gen_random_uuid()::text, '-', ''), 'hex') as bytes) s,
          unnest(array[0, 1, 2, 3, 4, 5, 7, 9, 10]) i
   $$`,
  // Ends a statement whose new row would leave the caller's scope. The API answers with the message.
  `create function svc_refuse(message text) returns boolean language plpgsql as $$
     begin raise exception using errcode = 'SV403', message = message; end
   $$`,
  // Ends a statement that points at a row which is missing or which the caller may not see. The message names the relation.
  `create function svc_refer(allowed boolean, relation text) returns boolean language plpgsql as $$
  begin
    if allowed then return true; end if;
    raise exception using errcode = 'SV400', message = relation;
  end
$$`,
]
