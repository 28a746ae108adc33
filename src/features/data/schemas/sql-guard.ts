import { type ParsedStatement, type ParseTree, parseSql, SqlSyntaxError } from '../../../adapters/sql-parser.ts'
import type { Catalog, Collection } from '../../../catalog/catalog.ts'
import { checksOf } from '../../../catalog/compile.ts'
import { type Reader, rawQuery } from '../../../db/sql.ts'
import { AppError } from '../../../errors.ts'

/**
 * The guard of SQL that comes from outside: SQL defaults, calculations and CHECK constraints of definitions. They run with
 * the rights of the database role whenever a row is written, so they may do no more than compute a value
 * (docs/decisions/0032-sql-from-outside.md). It works twice: on the text before any of it runs, by the list of names, and
 * on what PostgreSQL has made of the text, by the objects that the names stand for.
 */

/** An SQL text of a definition that is refused, and why: `calls pg_sleep(), which is not on the list of functions`. */
export type RefusedSql = { readonly collection: string; readonly part: string; readonly reason: string }

/** The texts of a collection that are not allowed. Runs nothing. */
export async function refusedTexts(collection: Collection): Promise<readonly RefusedSql[]> {
  const refused: RefusedSql[] = []
  for (const { part, text, row } of textsOf(collection)) {
    const reason = await refusalOf(text, row)
    if (reason !== undefined) refused.push({ collection: collection.name, part, reason })
  }
  return refused
}

/**
 * Objects in the tables' expressions that belong neither to PostgreSQL nor to a listed extension: functions, operators
 * or types made by users, under any name. The collections' tables must be there.
 */
export async function refusedObjects(db: Reader, collections: readonly Collection[]): Promise<readonly RefusedSql[]> {
  const parts = collections.flatMap((collection) =>
    textsOf(collection).map(({ part, column, constraint }) => ({
      collection: collection.name,
      part,
      column,
      constraint,
    })),
  )
  if (parts.length === 0) return []
  const rows = await db.any<{ place: number; object: string }>(
    rawQuery(strangersSql, [
      parts.map(({ collection }) => collection),
      parts.map(({ column }) => column ?? null),
      parts.map(({ constraint }) => constraint ?? null),
      trustedExtensions,
    ]),
  )
  return rows.map(({ place, object }) => {
    const { collection, part } = parts[place - 1]!
    return { collection, part, reason: `uses ${object}, which is not PostgreSQL's own` }
  })
}

/** Refuses texts of the collections that a change touches, before anything of them runs. */
export async function checkTexts({ collections }: Catalog, names: readonly string[]): Promise<void> {
  for (const name of names) {
    const collection = collections.get(name)
    if (collection !== undefined) refuse(await refusedTexts(collection))
  }
}

/** Refuses what the same texts have become, in the transaction that has made the tables. */
export async function checkObjects(db: Reader, { collections }: Catalog, names: readonly string[]): Promise<void> {
  refuse(
    await refusedObjects(
      db,
      names.flatMap((name) => collections.get(name) ?? []),
    ),
  )
}

function refuse([first]: readonly RefusedSql[]): void {
  if (first === undefined) return
  const { collection, part, reason } = first
  throw new AppError(400, `Invalid schema for ${collection}: ${part} ${reason}`, { code: 'SQL_NOT_ALLOWED' })
}

type Text = {
  /** Its place in words. */
  readonly part: string
  readonly column?: string
  readonly constraint?: string
  readonly text: string
  readonly row: ExpressionRow
}

function textsOf(collection: Collection): readonly Text[] {
  const { name: table, fields, system, definition } = collection
  const columns: ReadonlySet<string> = new Set(fields.keys())
  const hidden = system ? [...fields.values()].filter((field) => field.hidden).map(({ name }) => name) : []
  const row: ExpressionRow = { table, columns, secret: new Set(hidden) }
  const nothing: ExpressionRow = { table, columns: new Set(), secret: new Set() }
  return [
    ...[...fields.values()].flatMap((field): Text[] => {
      const place = { column: field.name, part: `field ${field.name}` }
      if (field.generated !== undefined) return [{ ...place, text: field.generated, row }]
      return field.default?.kind === 'sql' ? [{ ...place, text: field.default.expression, row: nothing }] : []
    }),
    ...checksOf(definition).map(({ name, expression }) => ({
      constraint: name,
      part: `constraint ${name}`,
      text: expression,
      row,
    })),
  ]
}

async function refusalOf(text: string, row: ExpressionRow): Promise<string | undefined> {
  try {
    return expressionRefusal(await parseSql(`select (${text})`), row)
  } catch (error) {
    if (error instanceof SqlSyntaxError) return `has a malformed SQL expression: ${error.message}`
    throw error
  }
}

/**
 * PostgreSQL records what a stored expression uses, save what every database has from its beginning, which is nearly all
 * of pg_catalog. `place` is the number of the part from 1.
 */
const strangersSql = `with expression as (
  select part.place, c.oid as relation, 'pg_attrdef'::regclass as classid, d.oid as objid
  from unnest($1::text[], $2::text[], $3::text[]) with ordinality part("table", "column", "constraint", place)
  join pg_class c on c.relname = part."table" and c.relnamespace = 'public'::regnamespace
  join pg_attribute a on a.attrelid = c.oid and a.attname = part."column"
  join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
  union all
  select part.place, c.oid, 'pg_constraint'::regclass, k.oid
  from unnest($1::text[], $2::text[], $3::text[]) with ordinality part("table", "column", "constraint", place)
  join pg_class c on c.relname = part."table" and c.relnamespace = 'public'::regnamespace
  join pg_constraint k on k.conrelid = c.oid and k.contype = 'c' and k.conname = part."constraint"
), own as (
  select 'pg_type'::regclass as classid, to_regtype(name)::oid as objid
  from unnest(array['public.svc_timerange', 'public.svc_timetzrange']) name
  union all
  select 'pg_proc'::regclass, to_regprocedure(name)::oid from unnest(array['public.svc_short_id()', 'public.svc_token()']) name
), used as (
  select distinct e.place, d.refclassid, d.refobjid,
    case d.refclassid when 'pg_type'::regclass then coalesce(
      (select nullif(t.typelem, 0) from pg_type t where t.oid = d.refobjid and t.typcategory = 'A'), d.refobjid)
      else d.refobjid end as element
  from expression e join pg_depend d on d.classid = e.classid and d.objid = e.objid
  where not (d.refclassid = 'pg_class'::regclass and d.refobjid = e.relation)
)
select place::int, pg_describe_object(refclassid, refobjid, 0) as object from used u
where not (refclassid in ('pg_collation'::regclass, 'pg_ts_config'::regclass, 'pg_ts_dict'::regclass)
    and (pg_identify_object(refclassid, refobjid, 0)).schema = 'pg_catalog')
  and not exists (select from own o where o.classid = u.refclassid and o.objid = u.element)
  and not exists (select from own o join pg_depend i on i.refclassid = o.classid and i.refobjid = o.objid
    where i.deptype = 'i' and i.classid = u.refclassid and i.objid = u.element)
  and not exists (select from pg_depend x join pg_extension e on e.oid = x.refobjid
    where x.refclassid = 'pg_extension'::regclass and x.deptype = 'e' and e.extname = any($4::text[])
      and x.classid = u.refclassid and x.objid = u.element)
order by place`

/** The columns that an expression may refer to: those of its row, none in a default; it may not read `secret` ones. */
type ExpressionRow = {
  readonly table: string
  readonly columns: ReadonlySet<string>
  readonly secret: ReadonlySet<string>
}

/**
 * Why the statements of `select (text)` are not one allowed expression; undefined when they are. Pure. Only parts that are
 * known to be harmless pass: a node, a member of a node or a name that is not listed is refused, also one that a later
 * version of PostgreSQL adds.
 */
export function expressionRefusal(statements: readonly ParsedStatement[], row: ExpressionRow): string | undefined {
  const [statement, ...more] = statements
  if (statement === undefined || more.length > 0 || statement.kind !== 'SelectStmt') return 'is not one expression'
  const { targetList = [], limitOption: _limit, op: _op, ...clauses } = statement.tree
  const [{ ResTarget: target = {} } = {}, ...others] = targetList as ParseTree[]
  const { val, location: _location, ...named } = target as ParseTree
  const isAlone = others.length === 0 && Object.keys(clauses).length === 0 && Object.keys(named).length === 0
  return isAlone ? nodeRefusal(val, row) : 'is not one expression'
}

/** Says why a member's value is refused; undefined when it is fine. */
type NodeRule = (value: unknown, row: ExpressionRow) => string | undefined

const anything: NodeRule = () => undefined
const node: NodeRule = (value, row) => nodeRefusal(value, row)
const nodes: NodeRule = (value, row) => firstRefusal(value as unknown[], (each) => nodeRefusal(each, row))
const oneOf =
  (refusal: (value: string) => string, ...values: readonly string[]): NodeRule =>
  (value) =>
    values.includes(String(value)) ? undefined : refusal(String(value))

/** The members of the nodes that may be there. Everything a node is about is listed; absent ones are zero or none. */
const known: Readonly<Record<string, Readonly<Record<string, NodeRule>>>> = {
  A_ArrayExpr: { elements: nodes, list_start: anything, list_end: anything },
  A_Const: { ival: anything, fval: anything, boolval: anything, sval: anything, bsval: anything, isnull: anything },
  A_Expr: {
    kind: oneOf(
      (kind) => `uses an expression of kind ${kind}`,
      'AEXPR_OP',
      'AEXPR_OP_ANY',
      'AEXPR_OP_ALL',
      'AEXPR_DISTINCT',
      'AEXPR_NOT_DISTINCT',
      'AEXPR_NULLIF',
      'AEXPR_IN',
      'AEXPR_LIKE',
      'AEXPR_ILIKE',
      'AEXPR_SIMILAR',
      'AEXPR_BETWEEN',
      'AEXPR_NOT_BETWEEN',
      'AEXPR_BETWEEN_SYM',
      'AEXPR_NOT_BETWEEN_SYM',
    ),
    name: operatorRefusal,
    lexpr: node,
    rexpr: node,
    rexpr_list_start: anything,
    rexpr_list_end: anything,
  },
  A_Indices: { is_slice: anything, lidx: node, uidx: node },
  A_Indirection: { arg: node, indirection: subscriptsRefusal },
  BoolExpr: { boolop: anything, args: nodes },
  BooleanTest: { booltesttype: anything, arg: node },
  CaseExpr: { arg: node, args: nodes, defresult: node },
  CaseWhen: { expr: node, result: node },
  CoalesceExpr: { args: nodes },
  CollateClause: { arg: node, collname: collationRefusal },
  ColumnRef: { fields: columnRefusal },
  FuncCall: { funcname: functionRefusal, args: nodes, funcformat: anything },
  JsonIsPredicate: { expr: node, format: anything, item_type: anything, unique_keys: anything },
  List: { items: nodes },
  MinMaxExpr: { op: anything, args: nodes },
  NamedArgExpr: { name: anything, argnumber: anything, arg: node },
  NullTest: { nulltesttype: anything, arg: node },
  RowExpr: { args: nodes, row_format: anything },
  SQLValueFunction: {
    op: oneOf(
      (op) => `uses ${op.replace('SVFOP_', '')}`,
      'SVFOP_CURRENT_DATE',
      'SVFOP_CURRENT_TIME',
      'SVFOP_CURRENT_TIME_N',
      'SVFOP_CURRENT_TIMESTAMP',
      'SVFOP_CURRENT_TIMESTAMP_N',
      'SVFOP_LOCALTIME',
      'SVFOP_LOCALTIME_N',
      'SVFOP_LOCALTIMESTAMP',
      'SVFOP_LOCALTIMESTAMP_N',
    ),
    typmod: anything,
  },
  TypeCast: { arg: node, typeName: typeRefusal },
}

/** The users' names for the kinds that are refused most. */
const namesOfKinds: Readonly<Record<string, string>> = {
  SubLink: 'a subquery',
  ParamRef: 'a parameter',
  XmlExpr: 'XML',
  XmlSerialize: 'XML',
  GroupingFunc: 'GROUPING',
  SetToDefault: 'DEFAULT',
}

const namesOfMembers: Readonly<Record<string, string>> = {
  over: 'a window',
  func_variadic: 'VARIADIC',
  agg_star: 'an aggregate',
  agg_distinct: 'an aggregate',
  agg_order: 'an aggregate',
  agg_filter: 'an aggregate',
  agg_within_group: 'an aggregate',
}

function nodeRefusal(value: unknown, row: ExpressionRow): string | undefined {
  const [[kind, members] = ['nothing', {}], ...more] = Object.entries(Object(value))
  const rules = more.length === 0 && Object.hasOwn(known, kind) ? known[kind]! : undefined
  if (rules === undefined) return `uses ${namesOfKinds[kind] ?? kind}`
  return firstRefusal(Object.entries(members as ParseTree), ([name, member]) => {
    if (name === 'location') return undefined
    if (!Object.hasOwn(rules, name)) return `uses ${namesOfMembers[name] ?? `${kind}.${name}`}`
    return rules[name]!(member, row)
  })
}

function firstRefusal<T>(values: readonly T[], refusal: (value: T) => string | undefined): string | undefined {
  for (const value of values) {
    const found = refusal(value)
    if (found !== undefined) return found
  }
  return undefined
}

/** The parts of a qualified name; undefined where one is no name, such as the star of `t.*`. */
function partsOf(value: unknown): readonly string[] | undefined {
  const parts = (value as ParseTree[]).map((part) => part.String?.sval as string | undefined)
  return parts.includes(undefined) ? undefined : (parts as string[])
}

/** BETWEEN is parsed as an operator of that name. */
const spelledOperators: ReadonlySet<string> = new Set([
  'BETWEEN',
  'NOT BETWEEN',
  'BETWEEN SYMMETRIC',
  'NOT BETWEEN SYMMETRIC',
])

function operatorRefusal(value: unknown): string | undefined {
  const parts = partsOf(value) ?? []
  const isOwn = parts.length === 1 || (parts.length === 2 && parts[0] === 'pg_catalog')
  const name = parts.at(-1) ?? ''
  if (isOwn && (operators.has(name) || spelledOperators.has(name))) return undefined
  return `uses the operator ${parts.join('.')}, which is not on the list`
}

function functionRefusal(value: unknown): string | undefined {
  const parts = partsOf(value) ?? []
  if (isListed(parts, coreFunctions, extensionFunctions) || isListed(parts, coreTypes, extensionTypes)) return undefined
  return `calls ${parts.join('.')}(), which is not on the list of functions`
}

function typeRefusal(value: unknown, row: ExpressionRow): string | undefined {
  const {
    names = [],
    typmods = [],
    arrayBounds: _bounds,
    typemod: _typemod,
    location: _location,
    ...more
  } = Object(value)
  const parts = partsOf(names) ?? []
  if (Object.keys(more).length === 0 && isListed(parts, coreTypes, extensionTypes)) return nodes(typmods, row)
  return `uses the type ${parts.join('.')}, which is not on the list of types`
}

/** Extensions may be in any schema that is not PostgreSQL's. */
function isListed(parts: readonly string[], core: ReadonlySet<string>, others: ReadonlySet<string>): boolean {
  const [schema, name = schema ?? '', ...more] = parts
  if (more.length > 0) return false
  if (parts.length === 1) return core.has(name) || others.has(name)
  return schema === 'pg_catalog' ? core.has(name) : others.has(name) && !schema!.startsWith('pg_')
}

function collationRefusal(value: unknown): string | undefined {
  const parts = partsOf(value) ?? []
  const isOwn = parts.length === 1 || (parts.length === 2 && parts[0] === 'pg_catalog')
  return isOwn ? undefined : `uses the collation ${parts.join('.')}`
}

/** PostgreSQL reads `note.f`, where `note` has no column `f`, as a call of `f` with the whole row. */
function columnRefusal(value: unknown, { table, columns, secret }: ExpressionRow): string | undefined {
  const parts = partsOf(value)
  if (parts === undefined) return 'refers to a whole row'
  const [name = '', ...qualifiers] = parts.toReversed()
  const isOwn = qualifiers.length === 0 || (qualifiers.length === 1 && qualifiers[0] === table)
  if (isOwn && secret.has(name)) return `reads the hidden field ${name} of a system collection`
  if (isOwn && columns.has(name)) return undefined
  const meant = [...columns].find((column) => column.toLowerCase() === name.toLowerCase())
  const hint = meant === undefined ? '' : `: did you mean "${meant}", in double quotes`
  return `names an unknown field ${parts.join('.')}${hint}`
}

/** `(value).f` reads a part of a composite value, or calls `f` with it. */
function subscriptsRefusal(value: unknown, row: ExpressionRow): string | undefined {
  const parts = value as ParseTree[]
  return parts.every((part) => part.A_Indices !== undefined) ? nodes(parts, row) : 'refers to a part of a value by name'
}

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
const trustedExtensions = ['citext', 'pgcrypto', 'postgis', 'uuid-ossp', 'vector'] as const

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
const extensionTypes: ReadonlySet<string> = new Set([
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
