/**
 * The objects of a database: rows of PostgreSQL's own catalog, with the definitions that `pg_get_…def` writes. All
 * names in them are full, because the search path is empty while they are read.
 */
import { type Reader, rawQuery } from '../../../db/sql.ts'
import { publicationName } from '../../../events/log.ts'

/** A table, a partition, a view or a materialised view. */
export type DatabaseRelation = {
  readonly oid: string
  readonly schema: string
  readonly name: string
  /** Quoted, with its schema. */
  readonly ident: string
  /** As in `pg_class.relkind`. */
  readonly kind: 'r' | 'p' | 'v' | 'm'
  readonly unlogged: boolean
  readonly options: readonly string[] | null
  readonly toastOptions: readonly string[] | null
  readonly partitionKey: string | null
  /** Of a partition: what is in it, and of which table. */
  readonly bound: string | null
  readonly parent: string | null
  readonly replicaIdentity: string
  readonly definition: string | null
  readonly populated: boolean
  readonly bytes: number
  readonly rows: number
}

export type TableColumn = {
  readonly relation: string
  readonly name: string
  readonly plainName: string
  readonly type: string
  readonly collation: string | null
  readonly notNull: boolean
  readonly identity: '' | 'a' | 'd'
  readonly generated: '' | 's' | 'v'
  readonly expression: string | null
  readonly expressionOid: string | null
  readonly storage: string | null
  readonly compression: string | null
  readonly statistics: number | null
  readonly options: readonly string[] | null
}

export type Sequence = {
  readonly oid: string
  readonly ident: string
  readonly type: string
  readonly start: string
  readonly increment: string
  readonly min: string
  readonly max: string
  readonly cache: string
  readonly cycle: boolean
  readonly unlogged: boolean
  /** Of an identity column: the table's oid and the column. */
  readonly identityOf: string | null
  /** `table.column`, where the sequence goes with a column. */
  readonly ownedBy: string | null
}

export type UserType = {
  readonly oid: string
  readonly ident: string
  readonly kind: 'e' | 'r' | 'd' | 'c'
  readonly labels: readonly string[] | null
  /** Of a range: what is written in its brackets. */
  readonly parts: readonly string[] | null
  readonly base: string | null
  readonly collation: string | null
  readonly fallback: string | null
  readonly notNull: boolean
  readonly constraints: readonly string[] | null
  readonly multirange: string | null
  readonly relation: string | null
}

type Routine = { readonly oid: string; readonly definition: string }

export type Constraint = {
  readonly name: string
  readonly kind: 'c' | 'p' | 'u' | 'x' | 'f'
  readonly ident: string
  readonly tableKind: string
  readonly isPartition: boolean
  readonly definition: string
}

export type TableIndex = {
  readonly ident: string
  readonly table: string
  readonly name: string
  readonly definition: string | null
  readonly parent: string | null
  readonly clustered: boolean
  readonly replicaIdentity: boolean
  readonly valid: boolean
}

export type TableTrigger = {
  readonly ident: string
  readonly name: string
  readonly definition: string
  readonly enabled: string
}

/** A dependency: catalog and object of both ends. */
export type Dependency = readonly [catalog: string, oid: string, on: string, onOid: string]

type Comment = { readonly kind: string; readonly identity: string; readonly text: string }
type DatabaseGrant = {
  readonly kind: string
  readonly identity: string
  readonly column: string | null
  /** Undefined for PUBLIC. */
  readonly role: string | null
  readonly privileges: readonly string[]
  readonly grantable: boolean
}

export type Objects = {
  readonly schemas: readonly { readonly name: string; readonly plainName: string }[]
  /** Schemas of other programs, in which nothing is read. */
  readonly leftOut: readonly string[]
  readonly extensions: readonly { readonly name: string; readonly schema: string }[]
  readonly relations: readonly DatabaseRelation[]
  readonly columns: readonly TableColumn[]
  readonly sequences: readonly Sequence[]
  readonly types: readonly UserType[]
  /** Every type of these schemas by the object that makes it: a table has one, and each type an array. */
  readonly typeMakers: readonly (readonly [oid: string, catalog: string, maker: string])[]
  readonly routines: readonly Routine[]
  readonly constraints: readonly Constraint[]
  readonly indexes: readonly TableIndex[]
  readonly triggers: readonly TableTrigger[]
  readonly rules: readonly { readonly definition: string }[]
  readonly statistics: readonly { readonly definition: string }[]
  /** Of a view's rule: the view. */
  readonly ruleOwners: readonly (readonly [oid: string, relation: string])[]
  readonly domainChecks: readonly (readonly [oid: string, type: string])[]
  readonly dependencies: readonly Dependency[]
  readonly comments: readonly Comment[]
  readonly grants: readonly DatabaseGrant[]
  /** Publications that others have made: what is sent where is no part of the data. */
  readonly publications: readonly string[]
  readonly withoutPublic: readonly { readonly kind: string; readonly identity: string }[]
  /** The objects that a backup cannot hold, in words. */
  readonly refused: readonly string[]
}

const platformSchemas = ['public', 'svc_log', 'pgboss']

/** Reads it all in the transaction of `db`, whose search path is empty. */
export async function readObjects(db: Reader): Promise<Objects> {
  const all = <Row>(text: string, values: readonly unknown[] = []) => db.any<Row>(rawQuery(text, values))
  const found = await all<{ oid: string; name: string; plainName: string; own: boolean }>(schemasSql, [platformSchemas])
  const schemas = found.filter(({ own }) => own)
  const oids = [schemas.map(({ oid }) => oid)]
  const within = <Row>(text: string) => all<Row>(text, oids)
  return {
    schemas,
    leftOut: found.flatMap(({ own, plainName }) => (own ? [] : [plainName])),
    extensions: await all(extensionsSql),
    relations: await within(relationsSql),
    columns: await within(columnsSql),
    sequences: await within(sequencesSql),
    types: await within(typesSql),
    typeMakers: (await within<{ pair: [string, string, string] }>(typeMakersSql)).map(({ pair }) => pair),
    routines: await within(routinesSql),
    constraints: await within(constraintsSql),
    indexes: await within(indexesSql),
    triggers: await within(triggersSql),
    rules: await within(rulesSql),
    statistics: await within(statisticsSql),
    ruleOwners: (await within<{ pair: [string, string] }>(ruleOwnersSql)).map(({ pair }) => pair),
    domainChecks: (await within<{ pair: [string, string] }>(domainChecksSql)).map(({ pair }) => pair),
    dependencies: (await all<{ edge: Dependency }>(dependenciesSql)).map(({ edge }) => edge),
    comments: await within(commentsSql),
    grants: await within(grantsSql),
    publications: (await all<{ name: string }>(publicationsSql, [publicationName])).map(({ name }) => name),
    withoutPublic: await within(withoutPublicSql),
    refused: (await within<{ says: string }>(refusedSql)).map(({ says }) => says),
  }
}

/** Made by an extension, or with another object: making that makes this too. */
const made = (catalog: string, oid: string, how: string) =>
  `exists (select from pg_depend made where made.classid = '${catalog}'::regclass and made.objid = ${oid} and made.deptype in (${how}))`
const byExtension = (catalog: string, oid: string) => made(catalog, oid, `'e'`)

const schemasSql = `select n.oid::text, quote_ident(n.nspname) as name, n.nspname as "plainName",
    n.nspname = any($1::text[]) or pg_has_role(n.nspowner, 'usage') as own
  from pg_namespace n
  where n.nspname !~ '^pg_' and n.nspname <> 'information_schema' and not ${byExtension('pg_namespace', 'n.oid')}
  order by n.nspname`

const extensionsSql = `select quote_ident(e.extname) as name, quote_ident(n.nspname) as schema
  from pg_extension e join pg_namespace n on n.oid = e.extnamespace where e.extname <> 'plpgsql' order by e.oid`

const named = (row: string, column = 'relname') =>
  `format('%I.%I', (select nspname from pg_namespace where oid = ${row}.${column === 'typname' ? 'typnamespace' : 'relnamespace'}), ${row}.${column})`

/**
 * Options without those that the server keeps for itself, which no statement may set, and no other server may know: a minor version of
 * PostgreSQL 15 notes `pg_attver` with every column.
 */
const settable = (options: string) => `(select array_agg(o) from unnest(${options}) o where o !~ '^pg_')`

const relationsSql = `select c.oid::text, n.nspname as schema, c.relname as name, ${named('c')} as ident, c.relkind::text as kind,
    c.relpersistence = 'u' as unlogged, ${settable('c.reloptions')} as options, ${settable('t.reloptions')} as "toastOptions",
    case when c.relkind = 'p' then pg_get_partkeydef(c.oid) end as "partitionKey",
    case when c.relispartition then pg_get_expr(c.relpartbound, c.oid) end as bound,
    (select ${named('p')} from pg_inherits i join pg_class p on p.oid = i.inhparent where i.inhrelid = c.oid and c.relispartition) as parent,
    c.relreplident::text as "replicaIdentity", c.relispopulated as populated,
    case when c.relkind in ('v', 'm') then pg_get_viewdef(c.oid) end as definition,
    (c.relpages::bigint * current_setting('block_size')::int)::float8 as bytes, greatest(c.reltuples, 0)::float8 as rows
  from pg_class c join pg_namespace n on n.oid = c.relnamespace left join pg_class t on t.oid = c.reltoastrelid
  where c.relnamespace = any($1::oid[]) and c.relkind in ('r', 'p', 'v', 'm') and not ${byExtension('pg_class', 'c.oid')}
  order by c.oid`

const columnsSql = `select a.attrelid::text as relation, quote_ident(a.attname) as name, a.attname as "plainName",
    format_type(a.atttypid, a.atttypmod) as type,
    case when a.attcollation <> 0 and a.attcollation <> t.typcollation then (
      select format('%I.%I', n.nspname, co.collname) from pg_collation co join pg_namespace n on n.oid = co.collnamespace
      where co.oid = a.attcollation) end as collation,
    a.attnotnull as "notNull", a.attidentity::text as identity, a.attgenerated::text as generated,
    pg_get_expr(d.adbin, d.adrelid) as expression, d.oid::text as "expressionOid",
    case when a.attstorage <> t.typstorage then a.attstorage::text end as storage, nullif(a.attcompression::text, '') as compression,
    nullif(a.attstattarget::int, -1) as statistics, ${settable('a.attoptions')} as options
  from pg_attribute a join pg_class c on c.oid = a.attrelid join pg_type t on t.oid = a.atttypid
    left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
  where c.relnamespace = any($1::oid[]) and c.relkind in ('r', 'p', 'v', 'm', 'c') and a.attnum > 0 and not a.attisdropped
  order by a.attrelid, a.attnum`

const sequencesSql = `select c.oid::text, ${named('c')} as ident, format_type(s.seqtypid, null) as type, s.seqstart::text as start,
    s.seqincrement::text as increment, s.seqmin::text as min, s.seqmax::text as max, s.seqcache::text as cache, s.seqcycle as cycle,
    c.relpersistence = 'u' as unlogged,
    case when d.deptype = 'i' then d.refobjid || ' ' || quote_ident(a.attname) end as "identityOf",
    case when d.deptype = 'a' then ${named('t')} || '.' || quote_ident(a.attname) end as "ownedBy"
  from pg_sequence s join pg_class c on c.oid = s.seqrelid
    left join pg_depend d on d.classid = 'pg_class'::regclass and d.objid = c.oid and d.refclassid = 'pg_class'::regclass
      and d.refobjsubid > 0 and d.deptype in ('a', 'i')
    left join pg_class t on t.oid = d.refobjid
    left join pg_attribute a on a.attrelid = d.refobjid and a.attnum = d.refobjsubid
  where c.relnamespace = any($1::oid[]) and not ${byExtension('pg_class', 'c.oid')} order by c.oid`

const typesSql = `select t.oid::text, ${named('t', 'typname')} as ident, t.typtype::text as kind,
    (select array_agg(e.enumlabel::text order by e.enumsortorder) from pg_enum e where e.enumtypid = t.oid) as labels,
    (select array_remove(array[
        'subtype = ' || format_type(r.rngsubtype, null),
        (select 'subtype_opclass = ' || format('%I.%I', n.nspname, o.opcname) from pg_opclass o
          join pg_namespace n on n.oid = o.opcnamespace where o.oid = r.rngsubopc and not o.opcdefault),
        (select 'collation = ' || format('%I.%I', n.nspname, co.collname) from pg_collation co
          join pg_namespace n on n.oid = co.collnamespace join pg_type sub on sub.oid = r.rngsubtype
          where co.oid = r.rngcollation and co.oid <> sub.typcollation),
        case when r.rngsubdiff <> 0 then 'subtype_diff = ' || r.rngsubdiff::regproc end,
        'multirange_type_name = ' || (select ${named('m', 'typname')} from pg_type m where m.oid = r.rngmultitypid)
      ], null) from pg_range r where r.rngtypid = t.oid) as parts,
    case when t.typtype = 'd' then format_type(t.typbasetype, t.typtypmod) end as base,
    case when t.typtype = 'd' then (select format('%I.%I', n.nspname, co.collname) from pg_collation co
      join pg_namespace n on n.oid = co.collnamespace join pg_type base on base.oid = t.typbasetype
      where co.oid = t.typcollation and co.oid <> base.typcollation) end as collation,
    case when t.typtype = 'd' then pg_get_expr(t.typdefaultbin, 0) end as fallback, t.typnotnull as "notNull",
    (select array_agg(format('constraint %I %s', k.conname, pg_get_constraintdef(k.oid)) order by k.conname)
      from pg_constraint k where k.contypid = t.oid and k.contype = 'c') as constraints,
    (select r.rngmultitypid::text from pg_range r where r.rngtypid = t.oid) as multirange,
    case when t.typtype = 'c' then t.typrelid::text end as relation
  from pg_type t left join pg_class c on c.oid = t.typrelid
  where t.typnamespace = any($1::oid[]) and (t.typtype in ('e', 'r', 'd') or t.typtype = 'c' and c.relkind = 'c')
    and not ${byExtension('pg_type', 't.oid')} order by t.oid`

/** By what a type is made that others may depend on. */
const typeMakersSql = `select json_build_array(t.oid::text,
    case when coalesce(e.typrelid, t.typrelid) <> 0 and k.relkind <> 'c' then 'pg_class' else 'pg_type' end,
    case when coalesce(e.typrelid, t.typrelid) <> 0 and k.relkind <> 'c' then coalesce(e.typrelid, t.typrelid)::text
      else coalesce((select r.rngtypid from pg_range r where r.rngmultitypid = coalesce(e.oid, t.oid)), e.oid, t.oid)::text end) as pair
  from pg_type t left join pg_type e on e.oid = t.typelem and t.typcategory = 'A'
    left join pg_class k on k.oid = coalesce(e.typrelid, t.typrelid)
  where t.typnamespace = any($1::oid[])`

const routinesSql = `select p.oid::text, pg_get_functiondef(p.oid) as definition from pg_proc p
  where p.pronamespace = any($1::oid[]) and p.prokind in ('f', 'p', 'w')
    and not ${made('pg_proc', 'p.oid', `'e', 'i'`)} order by p.oid`

/** Those of a partition that come with its table's own, and what every column says of itself, are not among them. */
const constraintsSql = `select quote_ident(k.conname) as name, k.contype::text as kind, ${named('c')} as ident, c.relkind::text as "tableKind",
    c.relispartition as "isPartition", pg_get_constraintdef(k.oid) as definition
  from pg_constraint k join pg_class c on c.oid = k.conrelid
  where c.relnamespace = any($1::oid[]) and c.relkind in ('r', 'p') and k.contype in ('c', 'p', 'u', 'x', 'f')
    and (k.contype in ('p', 'u', 'x') or k.conparentid = 0 and (k.conislocal or k.coninhcount = 0))
    and not ${byExtension('pg_class', 'c.oid')}
  order by array_position('{c,p,u,x,f}'::text[], k.contype::text), k.oid`

const indexesSql = `select ${named('x')} as ident, ${named('t')} as table, quote_ident(x.relname) as name,
    case when k.oid is null then pg_get_indexdef(x.oid) end as definition,
    (select ${named('p')} from pg_inherits h join pg_class p on p.oid = h.inhparent where h.inhrelid = x.oid) as parent,
    i.indisclustered as clustered, i.indisreplident as "replicaIdentity", i.indisvalid or t.relkind = 'p' as valid
  from pg_index i join pg_class x on x.oid = i.indexrelid join pg_class t on t.oid = i.indrelid
    left join pg_constraint k on k.conindid = i.indexrelid and k.contype in ('p', 'u', 'x') and k.conrelid = i.indrelid
  where t.relnamespace = any($1::oid[]) and t.relkind in ('r', 'p', 'm') and not ${byExtension('pg_class', 't.oid')}
  order by x.oid`

const triggersSql = `select ${named('c')} as ident, quote_ident(g.tgname) as name, pg_get_triggerdef(g.oid) as definition,
    g.tgenabled::text as enabled
  from pg_trigger g join pg_class c on c.oid = g.tgrelid
  where c.relnamespace = any($1::oid[]) and not g.tgisinternal and g.tgparentid = 0 and not ${byExtension('pg_class', 'c.oid')}
  order by g.oid`

const rulesSql = `select pg_get_ruledef(r.oid) as definition from pg_rewrite r join pg_class c on c.oid = r.ev_class
  where c.relnamespace = any($1::oid[]) and r.rulename <> '_RETURN' and not ${byExtension('pg_class', 'c.oid')} order by r.oid`

const statisticsSql = `select pg_get_statisticsobjdef(s.oid) as definition from pg_statistic_ext s
  where s.stxnamespace = any($1::oid[]) order by s.oid`

const publicationsSql = `select pubname as name from pg_publication where pubname <> $1 order by 1`

const ruleOwnersSql = `select json_build_array(r.oid::text, r.ev_class::text) as pair
  from pg_rewrite r join pg_class c on c.oid = r.ev_class where c.relnamespace = any($1::oid[])`

const domainChecksSql = `select json_build_array(k.oid::text, k.contypid::text) as pair
  from pg_constraint k join pg_type t on t.oid = k.contypid where t.typnamespace = any($1::oid[])`

/** A sequence that goes with a column is made before it. */
const dependenciesSql = `select json_build_array(d.classid::regclass::text, d.objid::text, d.refclassid::regclass::text, d.refobjid::text) as edge
  from pg_depend d
  where d.refobjid >= 16384 and d.deptype in ('n', 'a')
    and d.classid in ('pg_class'::regclass, 'pg_type'::regclass, 'pg_proc'::regclass, 'pg_rewrite'::regclass, 'pg_attrdef'::regclass,
      'pg_constraint'::regclass)
    and d.refclassid in ('pg_class'::regclass, 'pg_type'::regclass, 'pg_proc'::regclass)
    and not exists (select from pg_class s where d.classid = 'pg_class'::regclass and s.oid = d.objid and s.relkind = 'S')`

const commentsSql = `select o.type as kind, o.identity, d.description as text
  from pg_description d cross join lateral pg_identify_object(d.classoid, d.objoid, d.objsubid) o
  where d.classoid in ('pg_class'::regclass, 'pg_proc'::regclass, 'pg_type'::regclass, 'pg_constraint'::regclass,
      'pg_trigger'::regclass, 'pg_namespace'::regclass)
    and d.objoid >= 16384 and not ${byExtension('d.classoid', 'd.objoid').replace(`'d.classoid'::regclass`, 'd.classoid')}
    and (o.schema is null and o.type in ('schema', 'table constraint', 'trigger')
      or o.schema in (select quote_ident(nspname) from pg_namespace where oid = any($1::oid[]))
      or o.schema in (select nspname from pg_namespace where oid = any($1::oid[])))
  order by o.type, o.identity`

const acls = `(
    select 'pg_class'::regclass as catalog, c.oid, 0 as sub, c.relowner as owner, c.relacl as acl, c.relnamespace as place from pg_class c
      where c.relkind in ('r', 'p', 'v', 'm', 'S')
    union all select 'pg_class'::regclass, c.oid, a.attnum, c.relowner, a.attacl, c.relnamespace from pg_attribute a
      join pg_class c on c.oid = a.attrelid where a.attacl is not null and not a.attisdropped
    union all select 'pg_proc'::regclass, p.oid, 0, p.proowner, p.proacl, p.pronamespace from pg_proc p
    union all select 'pg_type'::regclass, t.oid, 0, t.typowner, t.typacl, t.typnamespace from pg_type t
    union all select 'pg_namespace'::regclass, n.oid, 0, n.nspowner, n.nspacl, n.oid from pg_namespace n
  ) held`

const grantsSql = `select o.type as kind, case when held.sub > 0 then (pg_identify_object(held.catalog, held.oid, 0)).identity else o.identity end as identity,
    case when held.sub > 0 then (select quote_ident(attname) from pg_attribute where attrelid = held.oid and attnum = held.sub) end as column,
    quote_ident(r.rolname) as role, array_agg(a.privilege_type order by a.privilege_type) as privileges, a.is_grantable as grantable
  from ${acls} cross join lateral aclexplode(held.acl) a left join pg_roles r on r.oid = a.grantee
    cross join lateral pg_identify_object(held.catalog, held.oid, held.sub) o
  where held.place = any($1::oid[]) and a.grantee <> held.owner and not ${byExtension('held.catalog', 'held.oid').replace(`'held.catalog'::regclass`, 'held.catalog')}
    and (r.oid is not null or a.grantee = 0 and held.catalog in ('pg_class'::regclass))
  group by 1, 2, 3, 4, 6 order by 1, 2, 3, 4`

/** Objects that everybody may use by default, and here may not. */
const withoutPublicSql = `select o.type as kind, o.identity
  from ${acls} cross join lateral pg_identify_object(held.catalog, held.oid, held.sub) o
  where held.place = any($1::oid[]) and held.catalog in ('pg_proc'::regclass, 'pg_type'::regclass) and held.acl is not null
    and not exists (select from aclexplode(held.acl) a where a.grantee = 0)
    and not ${byExtension('held.catalog', 'held.oid').replace(`'held.catalog'::regclass`, 'held.catalog')} order by 1, 2`

const refusal = (what: string, from: string) => `select '${what} ' || ${from}`

/** Objects that no statement of ours makes again. */
const refusedSql = [
  refusal(
    'foreign table',
    `c.oid::regclass::text from pg_class c where c.relkind = 'f' and c.relnamespace = any($1::oid[])`,
  ),
  refusal(
    'table with row security',
    `c.oid::regclass::text from pg_class c where (c.relrowsecurity or c.relforcerowsecurity) and c.relnamespace = any($1::oid[])`,
  ),
  refusal(
    'policy',
    `p.polname || ' of ' || p.polrelid::regclass from pg_policy p join pg_class c on c.oid = p.polrelid where c.relnamespace = any($1::oid[])`,
  ),
  refusal(
    'inheriting table',
    `c.oid::regclass::text from pg_inherits i join pg_class c on c.oid = i.inhrelid
       where not c.relispartition and c.relkind in ('r', 'p') and c.relnamespace = any($1::oid[])`,
  ),
  refusal(
    'table of a type',
    `c.oid::regclass::text from pg_class c where c.reloftype <> 0 and c.relnamespace = any($1::oid[])`,
  ),
  refusal(
    'table with another access method than heap',
    `c.oid::regclass::text from pg_class c join pg_am m on m.oid = c.relam where c.relkind = 'r' and m.amname <> 'heap' and c.relnamespace = any($1::oid[])`,
  ),
  refusal(
    'base type',
    `t.oid::regtype::text from pg_type t where t.typtype = 'b' and t.typelem = 0 and t.typnamespace = any($1::oid[])
    and not ${byExtension('pg_type', 't.oid')}`,
  ),
  refusal(
    'range type with a canonical function',
    `r.rngtypid::regtype::text from pg_range r join pg_type t on t.oid = r.rngtypid where r.rngcanonical <> 0 and t.typnamespace = any($1::oid[])
      and not ${byExtension('pg_type', 't.oid')}`,
  ),
  refusal(
    'aggregate',
    `p.oid::regprocedure::text from pg_proc p where p.prokind = 'a' and p.pronamespace = any($1::oid[])
    and not ${byExtension('pg_proc', 'p.oid')}`,
  ),
  refusal(
    'function in C',
    `p.oid::regprocedure::text from pg_proc p join pg_language l on l.oid = p.prolang
      where l.lanname in ('c', 'internal') and p.pronamespace = any($1::oid[]) and not ${made('pg_proc', 'p.oid', `'e', 'i'`)}`,
  ),
  ...[
    ['operator', 'pg_operator', 'oprname', 'oprnamespace'],
    ['operator class', 'pg_opclass', 'opcname', 'opcnamespace'],
    ['collation', 'pg_collation', 'collname', 'collnamespace'],
    ['conversion', 'pg_conversion', 'conname', 'connamespace'],
    ['text search configuration', 'pg_ts_config', 'cfgname', 'cfgnamespace'],
    ['text search dictionary', 'pg_ts_dict', 'dictname', 'dictnamespace'],
    ['text search parser', 'pg_ts_parser', 'prsname', 'prsnamespace'],
  ].map(([what, catalog, name, place]) =>
    refusal(
      what!,
      `o.${name} from ${catalog} o where o.${place} = any($1::oid[]) and not ${byExtension(catalog!, 'o.oid')}`,
    ),
  ),
  refusal(
    'cast',
    `c.castsource::regtype || ' as ' || c.casttarget::regtype from pg_cast c where c.oid >= 16384
    and not ${made('pg_cast', 'c.oid', `'e', 'i'`)}`,
  ),
  refusal(
    'event trigger',
    `e.evtname from pg_event_trigger e where pg_has_role(e.evtowner, 'usage') and not ${byExtension('pg_event_trigger', 'e.oid')}`,
  ),
  refusal('large object', `count(*) || ' of them' from pg_largeobject_metadata having count(*) > 0`),
]
  .map((part) => part)
  .join('\nunion all ')
  .replace(/^/, 'select says from (')
  .concat(') refused (says) order by 1')
