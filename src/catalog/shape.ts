import type { TSchema } from 'typebox'
import { fits, Type } from '../adapters/typebox.ts'
import { nearName, plain } from '../language/text.ts'
import { fieldTypes } from './fields.ts'
import { advicesOf, relationWords, type ShapeName, synonymOf, typeSynonymOf, typeSynonyms } from './synonyms.ts'
import { isObject } from './values.ts'

/**
 * The one closed shape of definitions: every member that a collection, a column, a relation, an index and a constraint
 * can have. Anything else is refused where a definition comes in (`declared.ts`); the meaning of a member is decided by
 * `compile.ts`. The descriptions are those of the reference.
 */
export const shapes = {
  collection: {
    name: text('Name for people; shown, without effect.'),
    description: text('For people; shown, without effect.'),
    timestamps: flag('Adds createdAt and updatedAt. Default true.'),
    paranoid: flag('Adds deletedAt: deleted items stay and are marked. Default false.'),
    usertrack: flag(
      'Adds userCreated_Id and userUpdated_Id with their relations to svc_User. Both are the caller, unless a new item names them; a change always sets userUpdated_Id to the caller. Default false.',
    ),
    sortEnabled: flag('Adds the Integer sort, by which items can be arranged. Default false.'),
    isJunction: plainFlag('Whether the collection links others; the relationships route sets it. Default false.'),
    realtime: any('true, false or {enabled, actions}: whether subscribers get changes. Default true.'),
    cache: any('true, false or {ttl: seconds}: whether answers may be kept. Default: the installation decides.'),
    fields: any('Columns and relations by name.'),
    indexes: listOrNull('A list of indexes.'),
    constraints: any('A list of constraints, or an object of them by name.'),
  },
  realtime: {
    enabled: plainFlag('Whether subscribers get changes. Default true.'),
    actions: any('A list of insert, update, delete. Default all.'),
    replicaIdentityFull: plainFlag('Known, without effect: the log holds whole rows.'),
  },
  cache: { ttl: any('Seconds that an answer may be kept at most.') },
  column: {
    type: any('The type; see the table of types.'),
    primaryKey: flag('Whether this is the primary key. Default false.'),
    allowNull: flag('Whether the value may be missing. Default true.'),
    unique: flag('Whether no two items may have the same value, per tenant with MULTI_TENANT. Default false.'),
    defaultValue: any('The value of an item that brings none: a literal, {value} or {type}; see Defaults.'),
    values: any(
      'Parameters of the type: {stringLength}, {precision, scale}, {srid}, {dimensions}, {type}, or the list of an ENUM.',
    ),
    validate: any('Rules for values; see validate.'),
    hidden: flag('Never answered, filtered, sorted, searched or logged. Default false.'),
    unlogged: flag('A change of such columns alone leaves no event. Default false.'),
    calculated: text('The SQL expression of a VIRTUAL column.'),
    SystemGenerated: any('"true" on what the server adds; an entry of that kind that comes back is ignored.'),
    description: any('For people; shown, without effect.'),
    comment: any('For people; shown, without effect.'),
    displayFormat: any('For user interfaces; shown, without effect.'),
    showAs: any('For user interfaces; shown, without effect.'),
    maxLength: any('For user interfaces; shown, not enforced: values.stringLength and validate.len are.'),
    editor: text('The editor that forms of the console have for it: {extension}/{editor}; see console-extensions.md.'),
  },
  values: {
    stringLength: any('Longest text of a String.'),
    length: any('Another word for stringLength.'),
    precision: any('Digits of a Decimal.'),
    scale: any('Digits after the point of a Decimal; values are rounded to them.'),
    srid: any('Coordinate system of a geometry. Default 4326.'),
    dimensions: any('Length of a vector.'),
    type: any('Type of the elements of an Array.'),
    values: any('The list of an ENUM.'),
  },
  relation: {
    relType: any('BelongsTo, HasMany, HasOne or BelongsToMany; M2O, O2M, O2O, M2M, M2A mean the same.'),
    type: any('With BelongsTo: the type of its column, which makes the entry column and relation in one.'),
    target: text('The collection it leads to.'),
    as: text('Name of the relation. Default: the name of the entry.'),
    foreignKey: text('The column that holds the key. Default {relation}_Id, of the others {collection}_Id.'),
    targetKey: text('The unique field of the target that the key names. Default: its primary key.'),
    allowNull: flag('BelongsTo: whether the column it adds may be empty. Default true.'),
    through: text('BelongsToMany: the collection of the links.'),
    otherKey: text("BelongsToMany: the link's column for the target. Default {target}_Id."),
    polymorphic: plainFlag('Whether it leads to the junction of an M2A. Default false.'),
    tables: listOrNull('The collections that an M2A can point at.'),
    onDelete: text(
      'CASCADE, RESTRICT, SET NULL or NO ACTION. Default SET NULL, or RESTRICT where the column is required.',
    ),
    onUpdate: text('The same for a changed key. Default CASCADE.'),
    constraints: plainFlag('false: no foreign key in the database. Default true.'),
    scope: any('{column: text}: the rows that count, around the junction of an M2A.'),
    SystemGenerated: any('"true" on what the server adds; an entry of that kind that comes back is ignored.'),
    description: any('For people; shown, without effect.'),
    comment: any('For people; shown, without effect.'),
    displayFormat: any('For user interfaces; shown, without effect.'),
    showAs: any('For user interfaces; shown, without effect.'),
    maxLength: any('For user interfaces; shown, without effect.'),
  },
  index: {
    name: text('Default {collection}_{fields}_idx.'),
    fields: any('The columns, a list of names.'),
    unique: plainFlag('Whether no two items may have the same values. Default false.'),
    nullsNotDistinct: plainFlag('With unique: whether missing values count as equal. Default false.'),
    type: any('btree, hash, gin or gist. Default btree.'),
    SystemGenerated: any('"true" on those of the system.'),
  },
  constraint: {
    type: any('"unique" or "check".'),
    name: text('Needed for a check; default of unique {collection}_{fields}_key.'),
    fields: any('unique: the columns, a list of names.'),
    nullsNotDistinct: plainFlag('unique: whether missing values count as equal. Default false.'),
    expression: text('check: the SQL condition that every item must meet.'),
  },
  relationship: {
    type: any('M2O, O2M, O2O, M2M or M2A; BelongsTo, HasMany, HasOne, BelongsToMany mean the same.'),
    relType: any('Another word for type.'),
    name: any('Name of the relation.'),
    as: text('Name of the relation, where it differs from name.'),
    target: text('The collection it leads to; every type but M2A has one.'),
    alias: text('Name of the relation back, on the target.'),
    foreignKey: text('The column that holds the key. Default {relation}_id, of O2M {alias or collection}_id.'),
    description: text('For people; shown, without effect.'),
    onDelete: text('CASCADE, RESTRICT, SET NULL or NO ACTION.'),
    onUpdate: text('The same for a changed key.'),
    showAs: listOrNull('For user interfaces; shown, without effect.'),
    through: text('M2M and M2A: name of the junction. Default {source}_{target}_{name}_junction.'),
    tables: any('M2A: the collections it can point at.'),
  },
} as const satisfies Record<ShapeName, Readonly<Record<string, ShapeMember>>>

/** A member: what it is for, what its values must be, and how a refusal calls these. */
type ShapeMember = TSchema & { readonly description: string; readonly expects?: string }

/** The members of a shape by name. */
export const membersOf = (shape: ShapeName): Readonly<Record<string, ShapeMember>> => shapes[shape]

function flag(description: string): ShapeMember {
  const words = [Type.Literal('true'), Type.Literal('false'), Type.Null()]
  return Type.Union([Type.Boolean(), ...words], { description, expects: 'true or false' }) as unknown as ShapeMember
}

function plainFlag(description: string): ShapeMember {
  return Type.Union([Type.Boolean(), Type.Null()], { description, expects: 'true or false' }) as unknown as ShapeMember
}

function text(description: string): ShapeMember {
  return Type.Union([Type.String(), Type.Null()], { description, expects: 'text' }) as unknown as ShapeMember
}

function listOrNull(description: string): ShapeMember {
  return Type.Union([Type.Array(Type.Unknown()), Type.Null()], {
    description,
    expects: 'a list',
  }) as unknown as ShapeMember
}

/** Checked where its meaning is compiled. */
function any(description: string): ShapeMember {
  return Type.Unknown({ description }) as unknown as ShapeMember
}

/* Words for relations. */

/** The kinds of relationships, in the specification's short words. */
const relationshipTypes = ['M2O', 'O2M', 'O2O', 'M2M', 'M2A'] as const
export type RelationshipType = (typeof relationshipTypes)[number]

/** The words of inline relations for them. */
const relTypes = ['BelongsTo', 'HasMany', 'HasOne', 'BelongsToMany'] as const
export type RelType = (typeof relTypes)[number]

const typeOf: Readonly<Record<RelType | RelationshipType, RelationshipType>> = {
  M2O: 'M2O',
  O2M: 'O2M',
  O2O: 'O2O',
  M2M: 'M2M',
  M2A: 'M2A',
  BelongsTo: 'M2O',
  HasMany: 'O2M',
  HasOne: 'O2O',
  BelongsToMany: 'M2M',
}

/** The kind that a word names, whichever of the two vocabularies it is from; undefined for other words. */
export function relationshipTypeOf(word: unknown): RelationshipType | undefined {
  return typeof word === 'string' && Object.hasOwn(typeOf, word) ? typeOf[word as RelType] : undefined
}

/** The right word for one that another product has; undefined where nothing is near. */
function relationWordFor(word: string): string | undefined {
  const same = Object.keys(typeOf).find((known) => plain(known) === plain(word))
  return same ?? (Object.hasOwn(relationWords, plain(word)) ? relationWords[plain(word)] : undefined)
}

/* Problems of a definition. */

/** Something in a definition that is not as it must be, and where. */
export type DefinitionProblem = { readonly path: string; readonly message: string }

type UncheckedJson = Readonly<Record<string, unknown>>

/** Members that none of the shapes has, and values that no such member can have. The first shape names what is meant. */
export function memberProblems(names: readonly ShapeName[], json: UncheckedJson, path: string): DefinitionProblem[] {
  return Object.entries(json).flatMap(([word, value]): DefinitionProblem[] => {
    const at = path === '' ? word : `${path}.${word}`
    const shape = names.find((name) => Object.hasOwn(membersOf(name), word))
    if (shape === undefined) return [{ path: at, message: unknownMember(names, word, value) }]
    const member = membersOf(shape)[word]!
    if (member.expects === undefined || fits(member, value)) return []
    return [{ path: at, message: `must be ${member.expects}` }]
  })
}

/** As {@link memberProblems}, for what must be an object. */
export function objectProblems(name: ShapeName, json: unknown, path: string): DefinitionProblem[] {
  return isObject(json) ? memberProblems([name], json, path) : [{ path, message: 'must be an object' }]
}

/** The problem with the word for a column's type, if any. */
export function typeProblem({ type, values, target, foreignKey }: UncheckedJson): string | undefined {
  if (type === undefined || type === null)
    return target === undefined && foreignKey === undefined
      ? 'is missing, such as "String"'
      : 'is missing: is this a relation? Then it needs relType, such as "BelongsTo"'
  if (typeof type !== 'string') return `unknown type ${JSON.stringify(type)}: a type is a word such as "String"`
  if (type === 'Array') return arrayProblem(values)
  if (Object.hasOwn(fieldTypes, type)) return undefined
  return `unknown type ${JSON.stringify(type)}${meant(typeWordFor(type))}`
}

/** The problem with the word for a relation's kind, if any. */
export function relTypeProblem(word: unknown): string | undefined {
  if (relationshipTypeOf(word) !== undefined) return undefined
  const right = typeof word === 'string' ? relationWordFor(word) : undefined
  return right === undefined
    ? `must be ${relTypes.slice(0, -1).join(', ')} or ${relTypes.at(-1)}`
    : `unknown relation ${JSON.stringify(word)}${meant(right)}`
}

function arrayProblem(values: unknown): string | undefined {
  const element = isObject(values) ? values.type : undefined
  if (typeof element === 'string' && Object.hasOwn(fieldTypes, `Array_${element}`)) return undefined
  return 'unknown type "Array" of nothing known: did you mean "Array_String", "Array_Integer" or the like?'
}

/** `date` is nearer to Date than to anything that is called by another word elsewhere. */
function typeWordFor(word: string): string | undefined {
  const names = Object.keys(fieldTypes)
  const same = names.find((name) => plain(name) === plain(word))
  return same ?? typeSynonymOf(word) ?? nearName(word, names)
}

const meant = (word: string | undefined) =>
  word === undefined ? '' : `, did you mean ${/\W/.test(word) ? word : JSON.stringify(word)}?`

function unknownMember(names: readonly ShapeName[], word: string, value: unknown): string {
  const advice = adviceOn(names, word, value)
  if (advice === undefined) return 'unknown member'
  return `unknown member${advice.startsWith('did you mean') ? ', ' : ': '}${advice}`
}

/** The same word in another case; another product's word; a word that is known elsewhere; a slip of the pen. */
function adviceOn(names: readonly ShapeName[], word: string, value: unknown): string | undefined {
  const known = names.flatMap((name) => Object.keys(membersOf(name)))
  const same = known.find((name) => plain(name) === plain(word))
  if (same !== undefined) return written(same, value)
  const synonym = names.map((name) => synonymOf(name, word, value)).find((advice) => advice !== undefined)
  if (synonym !== undefined) return synonym
  const home = homes.find(([name]) => !names.includes(name) && Object.hasOwn(membersOf(name), word))
  if (home !== undefined && names[0] !== 'collection') return home[1](word)
  if (names[0] === 'collection' && Object.hasOwn(membersOf('column'), word)) return 'a field says so itself, in fields'
  const near = nearName(word, known)
  return near === undefined ? undefined : written(near, value)
}

const homes: readonly [ShapeName, (word: string) => string][] = [
  ['relation', (word) => `${word} belongs to a relation, an entry with relType`],
  ['column', (word) => `${word} belongs to a column`],
  ['collection', (word) => `${word} stands beside fields`],
  ['values', (word) => `did you mean values: {"${word}": …}?`],
]

function written(name: string, value: unknown): string {
  const json = JSON.stringify(value)
  return json === undefined || json.length > 80 ? `did you mean ${name}?` : `did you mean ${name}: ${json}?`
}

/* The reference page. */

/** The page `docs/schema-members.md`: every member of the closed shape, every type, and other products' words for them. */
export function membersDocument(): string {
  return [
    '# Members of definitions',
    '',
    'Generated by `npm run gen` from `src/catalog/shape.ts`. Their meaning together: [schema-language.md](schema-language.md).',
    'The shape is closed: other members are refused with 400, all of them at once, each with its path and, if known, the right one.',
    '',
    ...sections.flatMap(([title, shape]) => [`## ${title}`, '', ...membersTable(shape), '']),
    '## Types',
    '',
    Object.keys(fieldTypes)
      .map((name) => `\`${name}\``)
      .join(', '),
    '',
    '`Array` with `values.type` is another spelling of `Array_Integer` and so on.',
    '',
    '## Words of other products',
    '',
    'Daybook takes none of these spellings; the refusal names the right one.',
    '',
    ...synonymSections.flatMap(([title, shape]) => [`### ${title}`, '', ...synonymsTable(advicesOf(shape)), '']),
    '### Types',
    '',
    ...synonymsTable(typeSynonyms),
    '',
  ].join('\n')
}

const sections: readonly [title: string, shape: ShapeName][] = [
  ['A collection', 'collection'],
  ['`realtime` as an object', 'realtime'],
  ['`cache` as an object', 'cache'],
  ['A column', 'column'],
  ['`values` of a column', 'values'],
  ['A relation', 'relation'],
  ['An index', 'index'],
  ['A constraint', 'constraint'],
  ['The body of `POST /schemas/{collection}/relationships`', 'relationship'],
]

const synonymSections: readonly [title: string, shape: ShapeName][] = [
  ['On a collection', 'collection'],
  ['On a column', 'column'],
  ['On a relation', 'relation'],
]

function membersTable(shape: ShapeName): string[] {
  const rows = Object.entries(membersOf(shape)).map(([name, member]) => {
    const { description, expects } = member
    return `| \`${name}\` | ${expects ?? ''} | ${cell(description)} |`
  })
  return ['| member | must be | meaning |', '| --- | --- | --- |', ...rows]
}

/** One row per advice: words that mean the same stand together. */
function synonymsTable(advices: readonly (readonly [word: string, advice: string])[]): string[] {
  const words = new Map<string, string[]>()
  for (const [word, advice] of advices) words.set(advice, [...(words.get(advice) ?? []), word])
  const rows = [...words].map(([advice, same]) => `| ${same.join(', ')} | ${cell(advice)} |`)
  return ['| word | right here |', '| --- | --- |', ...rows]
}

const cell = (text: string) => text.replace(/^did you mean (.*)\?$/, '$1').replaceAll('|', '\\|')
