/** The private servers behind the drivers. Each starts with the first play that needs it. */
import { readFileSync } from 'node:fs';
import type { Consumer } from '../../test/helpers/consumer.ts';
import { startPostgres } from '../../test/services/postgres.ts';
import { startRedis } from '../../test/services/redis.ts';
import { startUpstashRest } from '../../test/services/upstash-rest.ts';

const fileOf = (name: string): string => readFileSync(new URL(name, import.meta.url), 'utf8');
const PLAYS = fileOf('driver-plays.ts');
/** For each project that opens a store: its `driver-stores.ts`. */
export const STORES = fileOf('driver-stores.ts');

/** A server for one play: where it is, and what else the driver has to know. */
export interface Address {
  readonly url: string;
  readonly token?: string;
}

export class DriverServers {
  readonly #stops: (() => Promise<void>)[] = [];
  #postgres: ReturnType<typeof startPostgres> | undefined;
  #redis: ReturnType<typeof startRedis> | undefined;

  /** Runs the driver's play in a project that has `installed`, as `driver@version`. */
  async play(installed: string, makeProject: () => Promise<Consumer>): Promise<void> {
    const driver = installed.slice(0, installed.lastIndexOf('@'));
    const { url, token = '' } = await this.addressFor(driver);
    const project = await makeProject();
    project.write('package.json', '{ "type": "module" }');
    project.write('driver-stores.ts', STORES);
    project.write('play.ts', PLAYS);
    const args = ['--test-reporter', 'spec', 'play.ts', driver, url, token];
    await project.node('--import', 'tsx', ...args).catch((error: Error) => {
      throw new Error(error.message.replace(/^.*failing tests:/s, 'failing tests:'));
    });
  }

  async stop(): Promise<void> {
    for (const stop of this.#stops.reverse()) await stop();
  }

  async addressFor(driver: string): Promise<Address> {
    if (driver === 'pg') return this.#startPostgres();
    if (driver === '@upstash/redis') return this.#startUpstash();
    return driver === 'redis' || driver === 'ioredis' ? this.#startRedis() : { url: '' };
  }

  #startPostgres(): Promise<Address> {
    this.#postgres ??= this.#stopping(startPostgres());
    return this.#postgres;
  }

  #startRedis(): Promise<Address> {
    this.#redis ??= this.#stopping(startRedis());
    return this.#redis;
  }

  async #startUpstash(): Promise<Address> {
    return this.#stopping(startUpstashRest((await this.#startRedis()).url));
  }

  async #stopping<T extends { stop(): Promise<void> }>(starting: Promise<T>): Promise<T> {
    const started = await starting;
    this.#stops.push(() => started.stop());
    return started;
  }
}
