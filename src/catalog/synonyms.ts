import { plain } from '../language/text.ts'

/** A part of a definition that has members of its own. */
export type ShapeName =
  | 'collection'
  | 'realtime'
  | 'cache'
  | 'column'
  | 'values'
  | 'relation'
  | 'index'
  | 'constraint'
  | 'relationship'

/**
 * Words of other products for members that have another name here. Each gives the right one, from the value that came
 * with it where that decides.
 */
export function synonymOf(shape: ShapeName, word: string, value: unknown): string | undefined {
  const known = synonyms[shape]
  const advice = known === undefined || !Object.hasOwn(known, plain(word)) ? undefined : known[plain(word)]
  return typeof advice === 'function' ? advice(value) : advice
}

/** The synonyms of a shape with what is right, for a value that is not known. */
export function advicesOf(shape: ShapeName): readonly (readonly [word: string, advice: string])[] {
  return Object.entries(synonyms[shape] ?? {}).map(([word, advice]) => [
    word,
    typeof advice === 'function' ? advice(undefined) : advice,
  ])
}

/** Words for types, the right one after each. */
export function typeSynonymOf(word: string): string | undefined {
  const bare = plain(word.replace(/\(.*$/, ''))
  return Object.hasOwn(types, bare) ? types[bare] : undefined
}

/** Words for the kinds of relations. */
export const relationWords: Readonly<Record<string, string>> = {
  manytoone: 'BelongsTo',
  onetomany: 'HasMany',
  onetoone: 'HasOne',
  manytomany: 'BelongsToMany',
  manytoany: 'M2A',
  morphto: 'M2A',
}

type Advice = string | ((value: unknown) => string)
type Advices = Readonly<Record<string, Advice>>

const mean = (what: string) => `did you mean ${what}?`
/** A value as it would be written, as long as it is short. */
const shown = (value: unknown, absent: string) => {
  const json = JSON.stringify(value)
  return json === undefined || json.length > 80 ? absent : json
}
const isOff = (value: unknown) => value === false || value === 'false' || value === null || value === 0

const required: Advice = (value) => mean(`allowNull: ${isOff(value)}`)
const optional: Advice = (value) => mean(`allowNull: ${!isOff(value)}`)
const preset: Advice = (value) => mean(`defaultValue: ${shown(value, '…')}`)
const counted = mean('defaultValue: {"type": "AUTOINCREMENT"}')
const rule =
  (name: string): Advice =>
  (value) =>
    mean(`validate: {"${name}": ${shown(value, '…')}}`)
const sized =
  (name: string): Advice =>
  (value) =>
    mean(`values: {"${name}": ${shown(value, '…')}}`)
const listed: Advice = (value) => mean(`type: "ENUM", values: ${shown(value, '[…]')}`)
const pointing: Advice = (value) => {
  const target = typeof value === 'string' ? value.split('.')[0] : undefined
  return mean(`relType: "BelongsTo", target: ${shown(target, '"…"')}`)
}
const indexed = 'an index stands beside fields: indexes: [{"fields": ["…"]}], or unique: true here'
const same =
  (name: string): Advice =>
  (value) =>
    mean(`${name}: ${!isOff(value)}`)
const key = same('primaryKey')
const concealed = same('hidden')
const shownIf: Advice = (value) => mean(`hidden: ${isOff(value)}`)
const granted = 'permissions decide on each field that a role may read or write'
const computed: Advice = (value) => mean(`type: "VIRTUAL", calculated: ${shown(value, '"…"')}`)
const told = mean('description')
const keyed = 'a field is called by its key in fields'

const column: Advices = {
  required,
  isrequired: required,
  notnull: required,
  notnullable: required,
  mandatory: required,
  nonnull: required,
  nullable: optional,
  isnullable: optional,
  null: optional,
  optional,
  isoptional: optional,
  default: preset,
  defaultsto: preset,
  initial: preset,
  initialvalue: preset,
  autoincrement: counted,
  serial: counted,
  identity: counted,
  sequence: counted,
  generated: computed,
  computed,
  formula: computed,
  expression: computed,
  virtual: computed,
  min: rule('min'),
  minimum: rule('min'),
  max: rule('max'),
  maximum: rule('max'),
  minlength: (value) => mean(`validate: {"len": [${shown(value, '…')}, …]}`),
  len: rule('len'),
  notempty: rule('notEmpty'),
  isemail: rule('isEmail'),
  email: rule('isEmail'),
  isurl: rule('isUrl'),
  isint: rule('isInt'),
  isuuid: rule('isUUID'),
  pattern: rule('matches'),
  regex: rule('matches'),
  regexp: rule('matches'),
  match: rule('matches'),
  matches: rule('matches'),
  format: 'a format is a rule, such as validate: {"isEmail": true}',
  rules: mean('validate'),
  validation: mean('validate'),
  validations: mean('validate'),
  validators: mean('validate'),
  constraints: mean('validate, or constraints beside fields'),
  check: 'a check stands beside fields: constraints: [{"type": "check", "name": "…", "expression": "…"}]',
  length: sized('stringLength'),
  size: sized('stringLength'),
  stringlength: sized('stringLength'),
  precision: sized('precision'),
  scale: sized('scale'),
  decimals: sized('scale'),
  srid: sized('srid'),
  dimensions: sized('dimensions'),
  dimension: sized('dimensions'),
  items: 'an array is a type of its own, such as "Array_String"',
  array: 'an array is a type of its own, such as "Array_String"',
  enum: listed,
  enumvalues: listed,
  options: listed,
  choices: listed,
  allowedvalues: listed,
  allowed: listed,
  oneof: listed,
  ref: pointing,
  refs: pointing,
  references: pointing,
  reference: pointing,
  foreign: pointing,
  foreigntable: pointing,
  relation: pointing,
  relationto: pointing,
  collection: pointing,
  model: pointing,
  linkto: pointing,
  alias: 'as names the relation of an entry with relType',
  index: indexed,
  indexed,
  dbindex: indexed,
  pk: key,
  isprimary: key,
  isprimarykey: key,
  primary: key,
  id: key,
  isunique: same('unique'),
  uniq: same('unique'),
  private: concealed,
  secret: concealed,
  select: shownIf,
  selectable: shownIf,
  visible: shownIf,
  conceal: concealed,
  readonly: granted,
  immutable: granted,
  updatable: granted,
  editable: granted,
  writable: granted,
  insertable: granted,
  permissions: granted,
  name: keyed,
  field: keyed,
  columnname: keyed,
  datatype: mean('type'),
  kind: mean('type'),
  label: told,
  title: told,
  displayname: told,
  note: told,
  notes: told,
  help: told,
  hint: told,
  placeholder: told,
  interface: mean('displayFormat'),
  searchable: 'every text field is searched; hidden: true leaves one out',
  unsigned: mean('validate: {"min": 0}'),
  onupdatecurrenttimestamp: 'updatedAt comes by timestamps: true',
}

const { constraints: _ofColumns, ...alsoOfColumns } = column

const relation: Advices = {
  ...alsoOfColumns,
  alias: mean('as'),
  name: mean('as'),
  collection: mean('target'),
  model: mean('target'),
  to: mean('target'),
  ref: mean('target'),
  refs: mean('target'),
  references: mean('target'),
  reference: mean('target'),
  relation: mean('relType'),
  relationto: mean('target'),
  targetcollection: mean('target'),
  relationtype: mean('relType'),
  kind: mean('relType'),
  key: mean('foreignKey'),
  field: mean('foreignKey'),
  column: mean('foreignKey'),
  localkey: mean('foreignKey'),
  fk: mean('foreignKey'),
  sourcekey: mean('targetKey'),
  ownerkey: mean('targetKey'),
  pivot: mean('through'),
  junction: mean('through'),
  jointable: mean('through'),
  via: mean('through'),
  collections: mean('tables'),
  targets: mean('tables'),
  cascade: mean('onDelete: "CASCADE"'),
  inverse: 'the relation back is declared on the target, with relType HasMany or HasOne',
  inversedby: 'the relation back is declared on the target, with relType HasMany or HasOne',
  mappedby: 'the relation back is declared on the target, with relType HasMany or HasOne',
}

const collection: Advices = {
  columns: mean('fields'),
  properties: mean('fields'),
  attributes: mean('fields'),
  props: mean('fields'),
  schema: mean('fields'),
  relations: 'a relation is an entry of fields with relType, or made by POST /schemas/{collection}/relationships',
  relationships: 'a relation is an entry of fields with relType, or made by POST /schemas/{collection}/relationships',
  required: 'each field says so itself: allowNull: false',
  primarykey: 'the field says so itself: primaryKey: true',
  unique: 'a field says so itself: unique: true; several together: constraints: [{"type": "unique", "fields": […]}]',
  uniques: mean('constraints: [{"type": "unique", "fields": […]}]'),
  checks: mean('constraints: [{"type": "check", "name": "…", "expression": "…"}]'),
  index: mean('indexes'),
  indices: mean('indexes'),
  keys: mean('indexes'),
  softdelete: same('paranoid'),
  softdeletes: same('paranoid'),
  deletedat: mean('paranoid: true'),
  createdat: mean('timestamps: true'),
  updatedat: mean('timestamps: true'),
  timestamp: mean('timestamps: true'),
  track: mean('usertrack: true'),
  usertracking: mean('usertrack: true'),
  trackusers: mean('usertrack: true'),
  blame: mean('usertrack: true'),
  accountability: mean('usertrack: true'),
  sort: mean('sortEnabled: true'),
  sortable: mean('sortEnabled: true'),
  sortfield: mean('sortEnabled: true'),
  junction: mean('isJunction: true'),
  live: mean('realtime'),
  collection: 'the name of a collection stands beside schema, as collectionName',
  collectionname: 'the name of a collection stands beside schema, as collectionName',
  table: 'the name of a collection stands beside schema, as collectionName',
  tablename: 'the name of a collection stands beside schema, as collectionName',
  permissions: 'permissions are made by POST /permissions',
  hooks: 'hooks are code of an extension',
  title: mean('name'),
  label: mean('name'),
  displayname: mean('name'),
  comment: mean('description'),
  note: mean('description'),
  tenant: 'with MULTI_TENANT every collection has its tenant',
  multitenant: 'with MULTI_TENANT every collection has its tenant',
}

const index: Advices = {
  columns: mean('fields'),
  column: mean('fields: ["…"]'),
  field: mean('fields: ["…"]'),
  keys: mean('fields'),
  isunique: mean('unique: true'),
  method: mean('type'),
  using: mean('type'),
  where: 'an index covers every row',
  nullsdistinct: mean('nullsNotDistinct'),
}

const { alias: _alias, name: _name, ...alsoOfRelations } = relation

const relationship: Advices = {
  ...alsoOfRelations,
  relation: mean('name'),
  fieldname: mean('name'),
  relationtype: mean('type'),
  kind: mean('type'),
  inverse: mean('alias'),
  inversedby: mean('alias'),
  mappedby: mean('alias'),
  otherkey: 'the junction names its columns after its collections',
  required: 'allowNull: false on the column, once it is there',
}

const synonyms: Partial<Record<ShapeName, Advices>> = {
  collection,
  column,
  relation,
  index,
  relationship,
  constraint: {
    columns: mean('fields'),
    check: mean('expression'),
    condition: mean('expression'),
    sql: mean('expression'),
  },
  values: {
    size: mean('stringLength'),
    max: mean('stringLength'),
    maxlength: mean('stringLength'),
    digits: mean('precision'),
    options: mean('values'),
  },
  cache: { seconds: mean('ttl'), maxage: mean('ttl'), enabled: mean('cache: true or cache: false') },
  realtime: { events: mean('actions') },
}

const numbers = 'Integer, BigInt, Decimal or Double'
const types: Readonly<Record<string, string>> = {
  varchar: 'String',
  charactervarying: 'String',
  char: 'String',
  str: 'String',
  email: 'String with validate: {"isEmail": true}',
  url: 'String with validate: {"isUrl": true}',
  password: 'String with hidden: true',
  slug: 'String with unique: true',
  longtext: 'Text',
  richtext: 'HTML',
  markdown: 'Text',
  number: numbers,
  numeric: 'Decimal',
  money: 'Decimal',
  currency: 'Decimal',
  int: 'Integer',
  int4: 'Integer',
  smallint: 'Integer',
  int8: 'BigInt',
  long: 'BigInt',
  serial: 'Integer with defaultValue: {"type": "AUTOINCREMENT"}',
  bigserial: 'BigInt with defaultValue: {"type": "AUTOINCREMENT"}',
  autoincrement: 'Integer with defaultValue: {"type": "AUTOINCREMENT"}',
  float8: 'Double',
  doubleprecision: 'Double',
  float4: 'Real',
  bool: 'Boolean',
  timestamp: 'DateTime',
  timestamptz: 'DateTime',
  datetimetz: 'DateTime',
  dateonly: 'Date',
  object: 'JSON',
  map: 'JSON',
  array: 'Array_String, Array_Integer and the like',
  list: 'Array_String, Array_Integer and the like',
  enumeration: 'ENUM',
  select: 'ENUM',
  guid: 'UUID',
  uuidv4: 'UUID',
  objectid: 'UUID',
  id: 'UUID',
  computed: 'VIRTUAL',
  file: 'relType "BelongsTo" with target "svc_File"',
  image: 'relType "BelongsTo" with target "svc_File"',
  user: 'relType "BelongsTo" with target "svc_User"',
  relation: 'relType: "BelongsTo", target: "…"',
  reference: 'relType: "BelongsTo", target: "…"',
  geometry: 'Point, LineString, Polygon or GeometryCollection',
  embedding: 'Vector with values: {"dimensions": …}',
}

export const typeSynonyms: readonly (readonly [word: string, type: string])[] = Object.entries(types)
