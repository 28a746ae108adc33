/**
 * THE list of what SQL text of a definition may name. A function is on it because nothing but its arguments, the clock and
 * chance can reach its result, and because it changes nothing: it reads no table, file, setting or session, waits for
 * nothing, and runs no SQL. `sql-guard.ts` sees to it that a name means PostgreSQL's own object and not a namesake.
 */

const words = (...lines: readonly string[]): readonly string[] => lines.flatMap((line) => line.split(' '))

/** Functions of `pg_catalog`, by name: every function of that name there is harmless. */
export const coreFunctions: ReadonlySet<string> = new Set([
  ...words(
    // Text.
    'ascii bit_length btrim casefold char_length character_length chr concat concat_ws format initcap is_normalized left',
    'length like like_escape lower lpad ltrim md5 normalize notlike octet_length overlay position quote_ident',
    'quote_literal quote_nullable regexp_count regexp_instr regexp_like regexp_match regexp_replace regexp_split_to_array',
    'regexp_substr repeat replace reverse right rpad rtrim similar_to_escape split_part starts_with string_to_array',
    'strpos substr substring textlen to_ascii to_bin to_hex to_oct translate unistr upper hashtext hashtextextended',
    // Bytes.
    'bit_count convert_from convert_to crc32 crc32c decode encode get_bit get_byte set_bit set_byte sha224 sha256 sha384',
    'sha512',
    // Numbers.
    'abs acos acosd acosh asin asind asinh atan atan2 atan2d atand atanh cbrt ceil ceiling cos cosd cosh cot cotd degrees',
    'div erf erfc exp factorial floor gamma gcd lcm lgamma ln log log10 min_scale mod pi pow power radians random',
    'random_normal round scale sign sin sind sinh sqrt tan tand tanh to_number trim_scale trunc width_bucket',
    // Dates and times.
    'age clock_timestamp date_add date_bin date_part date_subtract date_trunc extract isfinite justify_days justify_hours',
    'justify_interval make_date make_interval make_time make_timestamp make_timestamptz now overlaps statement_timestamp',
    'timeofday timezone to_char to_date to_timestamp transaction_timestamp',
    // UUIDs.
    'gen_random_uuid uuid_extract_timestamp uuid_extract_version uuidv4 uuidv7',
    // JSON.
    'array_to_json json_array_length json_build_array json_build_object json_extract_path json_extract_path_text',
    'json_object json_strip_nulls json_typeof jsonb_array_length jsonb_build_array jsonb_build_object jsonb_concat',
    'jsonb_contains jsonb_delete jsonb_delete_path jsonb_exists jsonb_exists_all jsonb_exists_any jsonb_extract_path',
    'jsonb_extract_path_text jsonb_insert jsonb_object jsonb_path_exists jsonb_path_match jsonb_path_query_array',
    'jsonb_path_query_first jsonb_pretty jsonb_set jsonb_set_lax jsonb_strip_nulls jsonb_typeof row_to_json to_json to_jsonb',
    // Arrays.
    'array_append array_cat array_dims array_fill array_length array_lower array_ndims array_position array_positions',
    'array_prepend array_remove array_replace array_reverse array_sample array_shuffle array_sort array_to_string',
    'array_upper cardinality num_nonnulls num_nulls trim_array',
    // Ranges.
    'isempty lower_inc lower_inf multirange range_merge upper_inc upper_inf',
    // Full text.
    'array_to_tsvector json_to_tsvector jsonb_to_tsvector numnode phraseto_tsquery plainto_tsquery querytree setweight',
    'strip to_tsquery to_tsvector ts_delete ts_filter ts_headline ts_rank ts_rank_cd tsquery_phrase tsvector_to_array',
    'websearch_to_tsquery',
    // Addresses.
    'abbrev broadcast family host hostmask inet_merge inet_same_family macaddr8_set7bit masklen netmask network set_masklen',
    // Geometry.
    'area bound_box center diagonal diameter height isclosed isopen npoints pclose popen radius slope width',
  ),
])

/** Functions of the extensions in {@link trustedExtensions}, and those of the platform's own that make its ids. */
export const extensionFunctions: ReadonlySet<string> = new Set([
  ...words(
    'svc_short_id svc_token',
    // uuid-ossp and pgcrypto.
    'uuid_generate_v1 uuid_generate_v1mc uuid_generate_v3 uuid_generate_v4 uuid_generate_v5 uuid_nil uuid_ns_dns',
    'uuid_ns_oid uuid_ns_url uuid_ns_x500 crypt digest gen_random_bytes gen_salt hmac',
    // vector.
    'binary_quantize cosine_distance hamming_distance inner_product jaccard_distance l1_distance l2_distance l2_norm',
    'l2_normalize subvector vector_dims vector_norm',
    // PostGIS.
    'geometrytype st_area st_asbinary st_asewkb st_asewkt st_asgeojson st_astext st_azimuth st_boundary st_buffer',
    'st_centroid st_collect st_contains st_containsproperly st_convexhull st_coorddim st_coveredby st_covers st_crosses',
    'st_difference st_dimension st_disjoint st_distance st_distancesphere st_distancespheroid st_dwithin st_endpoint',
    'st_envelope st_equals st_expand st_exteriorring st_flipcoordinates st_force2d st_force3d st_forcepolygonccw',
    'st_forcepolygoncw st_geogfromtext st_geogfromwkb st_geographyfromtext st_geohash st_geometryfromtext st_geometryn',
    'st_geometrytype st_geomfromewkb st_geomfromewkt st_geomfromgeohash st_geomfromgeojson st_geomfromtext st_geomfromwkb',
    'st_interiorringn st_intersection st_intersects st_isclosed st_iscollection st_isempty st_isring st_issimple st_isvalid',
    'st_isvalidreason st_length st_length2d st_lineinterpolatepoint st_linelocatepoint st_m st_makeenvelope st_makeline',
    'st_makepoint st_makepointm st_makepolygon st_makevalid st_maxdistance st_memsize st_multi st_ndims st_npoints st_nrings',
    'st_numgeometries st_numinteriorrings st_numpoints st_orderingequals st_overlaps st_perimeter st_point',
    'st_pointfromtext st_pointn st_pointonsurface st_project st_quantizecoordinates st_relate st_reverse st_rotate st_scale',
    'st_setsrid st_simplify st_simplifypreservetopology st_snaptogrid st_srid st_startpoint st_symdifference st_touches',
    'st_transform st_translate st_within st_wrapx st_x st_xmax st_xmin st_y st_ymax st_ymin st_z st_zmax st_zmin',
  ),
])

/** Extensions whose operators, types and functions above a definition may use, where the installation has them. */
export const trustedExtensions = ['citext', 'pgcrypto', 'postgis', 'uuid-ossp', 'vector'] as const

/** Types of `pg_catalog` that values may be cast to; as functions they are the same casts. */
export const coreTypes: ReadonlySet<string> = new Set([
  ...words(
    'bit bool box bpchar bytea char cidr circle date datemultirange daterange float4 float8 inet int2 int4 int4multirange',
    'int4range int8 int8multirange int8range interval json jsonb jsonpath line lseg macaddr macaddr8 money name numeric',
    'nummultirange numrange path point polygon text time timestamp timestamptz timetz tsmultirange tsquery tsrange',
    'tstzmultirange tstzrange tsvector uuid varbit varchar',
  ),
])

/** Types of the extensions, and the platform's own. */
export const extensionTypes: ReadonlySet<string> = new Set([
  ...words(
    'box2d box3d citext geography geometry halfvec sparsevec svc_timemultirange svc_timerange svc_timetzmultirange',
    'svc_timetzrange vector',
  ),
])

export const operators: ReadonlySet<string> = new Set([
  ...words(
    '+ - * / % ^ |/ ||/ @ = <> != < <= > >= & | # ~ << >> || ~~ !~~ ~~* !~~* ~* !~ !~* ^@ ~=~ ~<~ ~<=~ ~>~ ~>=~',
    '-> ->> #> #>> @> <@ ? ?| ?& #- @? @@ && &< &> -|- <<= >>= <<| |>> &<| |&> <^ >^ ?# ?- ?-| ?|| @-@ @@@ ## !! ~= <->',
    '<=> <#> <+> <~> <%> &&& ~== @@ <<->> |=|',
  ),
])
