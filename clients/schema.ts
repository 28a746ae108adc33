/**
 * The types of a Daybook schema, and what follows from a query: `npx daybook types` writes such a schema, the client reads it.
 */

/** A relation, as `npx daybook types` writes it. */
export type RelationType = { readonly to: string; readonly many: boolean; readonly nullable: boolean }

export type CollectionType = {
  readonly key: string | number
  /** The name of the primary key; `id` unless given. */
  readonly keyName?: string
  readonly row: object
  readonly create: object
  readonly update: object
  readonly relations: Readonly<Record<string, RelationType>>
}

/** By name of the collection. */
export type SchemaType = { readonly [collection: string]: CollectionType }

/** Any collection, where no schema is given: rows are records of anything. */
export type AnySchema = {
  readonly [collection: string]: {
    readonly key: string | number
    // biome-ignore lint/suspicious/noExplicitAny: whoever gives no schema knows the rows
    readonly row: Readonly<Record<string, any>>
    readonly create: Readonly<Record<string, unknown>>
    readonly update: Readonly<Record<string, unknown>>
    readonly relations: Readonly<Record<string, RelationType>>
  }
}

export type Name<S> = keyof S & string
export type Row<S extends SchemaType, C extends Name<S>> = S[C]['row']
export type Key<S extends SchemaType, C extends Name<S>> = S[C]['key']
type Relations<S extends SchemaType, C extends Name<S>> = S[C]['relations']
type RelationName<S extends SchemaType, C extends Name<S>> = keyof Relations<S, C> & string

/** The collection that a relation leads to. */
type To<S extends SchemaType, C extends Name<S>, R extends RelationName<S, C>> = Relations<S, C>[R]['to'] & Name<S>

/** Shows what a type comes to, instead of how it was made. */
type Simplified<T> = { [Member in keyof T]: T[Member] } & {}

type Wildcard = '*' | '*.*' | '*.*.*'

/** A path that a query may name: a field, a relation, or a path behind one; `-` leaves a field out. Else never. */
export type ValidPath<S extends SchemaType, C extends Name<S>, P extends string> = string extends keyof Row<S, C>
  ? P
  : P extends Wildcard | (keyof Row<S, C> & string) | RelationName<S, C>
    ? P
    : P extends `-${keyof Row<S, C> & string}`
      ? P
      : P extends `${infer R}.${infer Rest}`
        ? R extends RelationName<S, C>
          ? ValidPath<S, To<S, C, R>, Rest> extends never
            ? never
            : P
          : never
        : never

/** A list of paths, of which each is valid; the names to choose from are shown by editors. */
export type ValidPaths<S extends SchemaType, C extends Name<S>, F extends readonly string[]> = {
  readonly [I in keyof F]: ValidPath<S, C, F[I]> extends never ? FirstPath<S, C> : F[I]
}

type FirstPath<S extends SchemaType, C extends Name<S>> =
  | Wildcard
  | (keyof Row<S, C> & string)
  | RelationName<S, C>
  | `${RelationName<S, C>}.*`

/** The path after a relation; all of its fields where it is named alone, or by a wildcard over relations. */
type After<P extends string, R extends string> = P extends `${R}.${infer Rest}`
  ? Rest
  : P extends R | '*.*'
    ? '*'
    : P extends '*.*.*'
      ? '*.*'
      : never

/** The relations that a path leads into; of wildcards all. */
type Named<P extends string, R extends string> = P extends R
  ? P
  : P extends '*.*' | '*.*.*'
    ? R
    : P extends `${infer Head}.${string}`
      ? Head & R
      : never

type OwnFields<S extends SchemaType, C extends Name<S>, P extends string> =
  | (P extends Wildcard ? keyof Row<S, C> : never)
  | (P & keyof Row<S, C>)

type LeftOut<P extends string> = P extends `-${infer Field}` ? Field : never

/** What is only left out is left out of all own fields. */
type Included<P extends string> = [Exclude<P, `-${string}`>] extends [never] ? P | '*' : P

type KeyName<S extends SchemaType, C extends Name<S>> = S[C] extends { keyName: infer K extends string } ? K : 'id'

type OrNull<T, IsNullable extends boolean> = IsNullable extends true ? T | null : T

type Related<S extends SchemaType, C extends Name<S>, P extends string, R extends RelationName<S, C>> = Relations<
  S,
  C
>[R] extends { many: true }
  ? Nested<S, To<S, C, R>, After<P, R>>[]
  : OrNull<Nested<S, To<S, C, R>, After<P, R>>, Relations<S, C>[R]['nullable']>

/** A nested row, and a live one, always has its key. */
export type Nested<S extends SchemaType, C extends Name<S>, P extends string> = Simplified<
  Selected<S, C, P> & Pick<Row<S, C>, KeyName<S, C> & keyof Row<S, C>>
>

/** The row that a query gives, of the paths that it names. */
export type Selected<S extends SchemaType, C extends Name<S>, P extends string> = string extends keyof Row<S, C>
  ? Row<S, C>
  : string extends P
    ? Row<S, C>
    : Simplified<
        Pick<Row<S, C>, Exclude<OwnFields<S, C, Included<P>>, LeftOut<P>> & keyof Row<S, C>> & {
          readonly [R in Named<P, RelationName<S, C>>]: Related<S, C, P, R>
        }
      >

/** A field of a collection, as a query for changes names it; `-` leaves it out. */
export type ChangeField<S extends SchemaType, C extends Name<S>> =
  C extends Name<S> ? `${C}.*` | `${'' | '-'}${C}.${keyof Row<S, C> & string}` : never

/** The paths of one collection among those of `changes`. */
type PathIn<C extends string, P extends string> = P extends `-${C}.${infer Field}`
  ? `-${Field}`
  : P extends `${C}.${infer Field}`
    ? Field
    : never

/** The row of a change; whole where no path names the collection. */
export type ChangedRow<S extends SchemaType, C extends Name<S>, P extends string> = [PathIn<C, P>] extends [never]
  ? Row<S, C>
  : Selected<S, C, PathIn<C, P>>

type Equality = 'eq' | 'ne' | 'neq' | 'not'
type Order = 'gt' | 'gte' | 'lt' | 'lte'
type Lists = 'in' | 'notIn' | 'nin'
type Ranges = 'between' | 'notBetween' | 'nbetween'
type NullTests = 'is' | 'isNull' | 'isNotNull' | 'empty'
type Patterns =
  | ('like' | 'notLike' | 'iLike' | 'notILike' | 'ilike' | 'contains' | 'icontains' | 'ncontains' | 'regex')
  | `${'' | 'n'}${'startsWith' | 'endsWith'}${'' | 's'}`
type ArrayTests =
  | ('arraycontains' | 'arraycontained' | 'overlaps' | 'arraylength' | 'arrayempty')
  | ('arraycontainsany' | 'arrayoverlap')
type JsonTests =
  | `jsonb${'Contains' | 'ContainedBy' | 'NotContains' | 'PathExists' | 'PathMatch' | 'ArrayLength' | 'TypeOf' | 'DeepValue'}`
  | `jsonbHas${'Key' | 'AnyKeys' | 'AllKeys'}`
  | `jsonbKey${'Equals' | 'NotEquals' | 'Gt' | 'Gte' | 'Lt' | 'Lte' | 'In' | 'NotIn' | 'Like' | 'IsNull' | 'IsNotNull'}`
  | ('jsoncontains' | 'jsonhaskey' | 'jsonhasanykeys' | 'jsonhasallkeys' | 'jsonpath')
type PlaceTests = 'within' | 'containsGEO' | 'intersects' | 'nIntersects' | 'dwithin'
type VectorTests = `vector${'L2' | 'Cosine' | 'InnerProduct' | 'L1'}`

/** Every operator of the query language. */
export type OperatorName =
  | (Equality | Order | Lists | Ranges | NullTests | Patterns)
  | (ArrayTests | JsonTests | PlaceTests | VectorTests)

/** A variable (`$NOW`, `$CURRENT_USER.email`) or another column (`$COL(name)`). */
type Variable = `$${string}`

/** What a value may be written as: a Decimal is text in rows and may be a number here, a moment may be a Date. */
type Comparable<T> = T extends string
  ? string extends T
    ? string | number | Date
    : T
  : T extends number
    ? T | `${number}`
    : T extends boolean
      ? T | `${T}`
      : never

type Truth = boolean | `${boolean}`

/** The tests of a field that has an order. `V` is a value or a variable. */
type OrderedTests<V> = { readonly [One in Equality]?: V | null } & { readonly [One in Order]?: V } & {
  readonly [One in Lists]?: readonly (V | null)[] | Variable
} & { readonly [One in Ranges]?: readonly [V, V] } & {
  readonly is?: Truth | null
  readonly isNull?: Truth
  readonly isNotNull?: Truth
  readonly empty?: Truth
}

/** With `cast` the values are those of another type. */
type CastTests = { readonly cast: string } & { readonly [One in OperatorName]?: unknown }

type ScalarTests<T, V> =
  | (OrderedTests<V> & { readonly [One in Patterns]?: [Extract<T, string>] extends [never] ? never : string } & {
      readonly cast?: null
    })
  | CastTests

/** The operands that a field can be compared with; those of lists, JSON and places are left to the server. */
type Operand<T> = 0 extends 1 & T
  ? T
  : [NonNullable<T>] extends [string | number | boolean]
    ? Comparable<NonNullable<T>> | Variable | null | ScalarTests<T, Comparable<NonNullable<T>> | Variable>
    : T | string | null | { readonly [One in OperatorName | 'cast']?: unknown }

/** A filter in the query language. Fields, relations, operators and values are checked, paths with dots are not. */
export type Filter<S extends SchemaType, C extends Name<S>> = {
  readonly [F in keyof Row<S, C>]?: Operand<Row<S, C>[F]>
} & {
  readonly [R in RelationName<S, C>]?:
    | Filter<S, To<S, C, R>>
    | null
    | { readonly isNull?: boolean; readonly isNotNull?: boolean }
} & {
  readonly [One in 'AND' | 'and' | 'OR' | 'or']?: readonly Filter<S, C>[]
} & {
  readonly [One in 'NOT' | 'not']?: Filter<S, C> | readonly Filter<S, C>[]
} & { readonly [path in `${string}.${string}`]?: unknown }

/** `name`, `-name`, and paths behind relations. */
export type Sort<S extends SchemaType, C extends Name<S>> =
  | (keyof Row<S, C> & string)
  | `-${keyof Row<S, C> & string}`
  | `${string}.${string}`

export type AggregateFunction = 'count' | 'sum' | 'avg' | 'min' | 'max' | 'distinct' | 'array_agg'

export type Aggregates<S extends SchemaType, C extends Name<S>> = Readonly<
  Record<
    string,
    { readonly function: AggregateFunction; readonly field: '*' | (keyof Row<S, C> & string) | `${string}.${string}` }
  >
>

/**
 * The least or the greatest value. A Decimal, whose digits survive in a number, is one; it is told from text by what may be
 * written, and may be either where that is not known.
 */
type Extreme<R, W, F extends keyof R> =
  | R[F]
  | null
  | ([W] extends [never] ? NumberOf<R[F]> : F extends keyof W ? Extract<W[F], number> : NumberOf<R[F]>)

type NumberOf<T> = string extends T ? number : never

type Aggregated<R, W, A> = A extends { function: 'count' | 'distinct' }
  ? number
  : A extends { function: 'sum' }
    ? number | string | null
    : A extends { function: 'avg' }
      ? number | null
      : A extends { function: 'min' | 'max'; field: infer F }
        ? F extends keyof R
          ? Extreme<R, W, F>
          : unknown
        : A extends { function: 'array_agg'; field: infer F }
          ? F extends keyof R
            ? R[F][]
            : unknown[]
          : unknown

/** What a report groups by: own fields are checked, paths and parts of dates are not; the names to choose from are shown by editors. */
export type ValidGroups<S extends SchemaType, C extends Name<S>, G extends readonly string[]> = {
  readonly [I in keyof G]: G[I] extends `${string}${'.' | ':'}${string}`
    ? G[I]
    : G[I] & keyof Row<S, C> extends never
      ? keyof Row<S, C> & string
      : G[I]
}

/** Aggregates, groups and own fields; `-` before one for descending. Paths and parts of dates are not checked. */
export type ReportSort<S extends SchemaType, C extends Name<S>, A, G extends readonly string[]> =
  | `${'' | '-'}${(keyof A & string) | GroupName<G[number]> | (keyof Row<S, C> & string)}`
  | `${string}${'.' | ':'}${string}`

/** How a group is called in rows: `date:year:createdAt` is `year_createdAt`, `owner.name` is `owner_name`. */
type GroupName<G extends string> = G extends `date:${infer Part}:${infer Field}`
  ? `${Part}_${Field}`
  : G extends `${infer Head}.${infer Rest}`
    ? `${Head}_${GroupName<Rest>}`
    : G

type GroupValue<S extends SchemaType, C extends Name<S>, G extends string> = G extends `date:${
  | 'yearmonth'
  | 'yearweek'}:${string}`
  ? string | null
  : G extends `date:${string}`
    ? number | null
    : ValueAt<S, C, G>

/** The value at a path, which may lead to no row. */
type ValueAt<S extends SchemaType, C extends Name<S>, P extends string> = P extends keyof Row<S, C>
  ? Row<S, C>[P]
  : P extends `${infer R}.${infer Rest}`
    ? R extends RelationName<S, C>
      ? ValueAt<S, To<S, C, R>, Rest> | null
      : unknown
    : unknown

/** The fields and relations beside a group: there are none unless a path is among those asked for. */
type BesideGroup<S extends SchemaType, C extends Name<S>, P extends string> =
  Extract<P, `${string}.${string}`> extends never ? unknown : Selected<S, C, P>

/** Groups by a path: its relations come beside it. */
type PathGroup<G extends string> = G extends `date:${string}` ? never : Extract<G, `${string}.${string}`>

/** The rows of a report. */
export type ReportRow<
  S extends SchemaType,
  C extends Name<S>,
  A extends Aggregates<S, C>,
  G extends readonly string[],
  F extends readonly string[] = [],
> = Simplified<
  { readonly [N in keyof A]: Aggregated<Row<S, C>, S[C]['create'], A[N]> } & {
    readonly [One in G[number] as One | GroupName<One>]: GroupValue<S, C, One>
  } & (G extends readonly [] ? unknown : BesideGroup<S, C, F[number]> & BesideGroup<S, C, PathGroup<G[number]>>)
>
