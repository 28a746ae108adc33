import { type TSchema, Type } from 'typebox'

/**
 * The one closed shape of definitions: every member that a collection, a column, a relation, an index and a constraint
 * can have. Anything else is refused where a definition comes in (`declared.ts`); the meaning of a member is decided by
 * `compile*.ts`. The descriptions are those of the reference.
 */
export const shapes = {
  collection: {
    name: text('Name for people; shown, without effect.'),
    description: text('For people; shown, without effect.'),
    timestamps: flag('Adds createdAt and updatedAt. Default true.'),
    paranoid: flag('Adds deletedAt: deleted items stay and are marked. Default false.'),
    usertrack: flag('Adds userCreated_Id and userUpdated_Id with their relations to svc_User. Default false.'),
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
  },
  values: {
    stringLength: any('Longest text of a String.'),
    length: any('Another word for stringLength.'),
    precision: any('Digits of a Decimal.'),
    scale: any('Digits after the point of a Decimal.'),
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
    foreignKey: text('The column that holds the key. Default {relation}_Id.'),
    description: text('For people; shown, without effect.'),
    onDelete: text('CASCADE, RESTRICT, SET NULL or NO ACTION.'),
    onUpdate: text('The same for a changed key.'),
    showAs: listOrNull('For user interfaces; shown, without effect.'),
    through: text('M2M and M2A: name of the junction. Default {source}_{target}_{name}_junction.'),
    tables: any('M2A: the collections it can point at.'),
  },
} as const satisfies Record<string, Readonly<Record<string, Member>>>

export type ShapeName = keyof typeof shapes

/** A member: what it is for, what its values must be, and how a refusal calls these. */
export type Member = TSchema & { readonly description: string; readonly expects?: string }

/** The members of a shape by name. */
export const membersOf = (shape: ShapeName): Readonly<Record<string, Member>> => shapes[shape]

function flag(description: string): Member {
  const words = [Type.Literal('true'), Type.Literal('false'), Type.Null()]
  return Type.Union([Type.Boolean(), ...words], { description, expects: 'true or false' }) as unknown as Member
}

function plainFlag(description: string): Member {
  return Type.Union([Type.Boolean(), Type.Null()], { description, expects: 'true or false' }) as unknown as Member
}

function text(description: string): Member {
  return Type.Union([Type.String(), Type.Null()], { description, expects: 'text' }) as unknown as Member
}

function listOrNull(description: string): Member {
  return Type.Union([Type.Array(Type.Unknown()), Type.Null()], { description, expects: 'a list' }) as unknown as Member
}

/** What is right for it is said where its meaning is compiled. */
function any(description: string): Member {
  return Type.Unknown({ description }) as unknown as Member
}
